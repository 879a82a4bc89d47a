"""GraphBuilder: constants and nodes of an ONNX graph, with matrices in a given precision.

Matrices in int8 are quantized by blocks of input columns: round to nearest, symmetric, one scale a block. ONNX
Runtime's MatMulNBits multiplies them and quantizes each row of activations by the same blocks. Unlike dynamic
quantization of whole tensors, this keeps a text's vector independent of its batch. A large activation also costs
precision in its own block only.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from gateway.embedding.encoder import Precision

CONTRIB: Final = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""
BLOCK_COLUMNS: Final = 64

_ZERO_POINT: Final = 128
_OPSET: Final = 18
_IR_VERSION: Final = 9
_COMPUTE_IN_INT8: Final = 4


class GraphBuilder:
    """Builder of a graph; every method returns the name of the value that it added."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self._nodes: list[Any] = []
        self._constants: list[TensorProto] = []

    def constant(self, array: NDArray[Any]) -> str:
        """Add a tensor that is part of the model."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, operator: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> list[str]:
        """Add an operator; return the names of its outputs."""
        number = len(self._nodes)
        names = [f"value_{number}_{place}" for place in range(outputs)]
        made = helper.make_node(operator, inputs, names, domain=domain, name=f"node_{number}", **attributes)
        self._nodes.append(made)
        return names

    def one(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add an operator with one output."""
        return self.node(operator, *inputs, domain=domain, **attributes)[0]

    def table(self, rows: NDArray[np.float32], index: str) -> str:
        """Add a lookup of table rows by `index`; beside int8 matrices the table is stored in half precision."""
        if self._precision == "fp32":
            return self.one("Gather", self.constant(rows), index)
        found = self.one("Gather", self.constant(rows.astype(np.float16)), index)
        return self.one("Cast", found, to=TensorProto.FLOAT)

    def linear(self, value: str, weight: NDArray[np.float32]) -> str:
        """Add `value @ weight.T`; `weight` is `[outputs, inputs]`, as in PyTorch."""
        if self._precision == "fp32":
            return self.one("MatMul", value, self.constant(weight.T))
        quantized, scales = quantize_blocks(weight, BLOCK_COLUMNS)
        return self.one(
            "MatMulNBits",
            *(value, self.constant(quantized), self.constant(scales)),
            domain=CONTRIB,
            N=weight.shape[0],
            K=weight.shape[1],
            bits=8,
            block_size=BLOCK_COLUMNS,
            accuracy_level=_COMPUTE_IN_INT8,
        )

    def finish(self, inputs: list[ValueInfoProto], output: str, shape: list[str | int]) -> bytes:
        """Return the serialized model, with `output` renamed to `embedding`."""
        self._nodes.append(helper.make_node("Identity", [output], ["embedding"]))
        result = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, shape)
        graph: GraphProto = helper.make_graph(self._nodes, "encoder", inputs, [result], self._constants)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(CONTRIB, 1)]
        model: ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        serialized: bytes = model.SerializeToString()
        return serialized


def quantize_blocks(weight: NDArray[np.float32], block: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return weights `[outputs, blocks, block]` around 128 and scales `[outputs, blocks]`.

    Args:
        weight: `[outputs, inputs]`; `inputs` must be a multiple of `block`.
        block: Input columns that share a scale.
    """
    outputs, inputs = weight.shape
    blocks = weight.reshape(outputs, inputs // block, block)
    scales = np.maximum(np.abs(blocks).max(axis=2) / 127, np.finfo(np.float32).tiny).astype(np.float32)
    rounded = np.rint(blocks / scales[..., None])
    return (np.clip(rounded, -127, 127) + _ZERO_POINT).astype(np.uint8), scales
