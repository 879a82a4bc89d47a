"""GraphBuilder: constants and nodes of an ONNX graph, named by count, and matrices in the precision asked for.

Matrices in int8 are quantized by blocks of input columns (round to nearest, symmetric, one scale a block) and
multiplied by ONNX Runtime's MatMulNBits, which quantizes each row of the activations by the same blocks as it goes.
Unlike dynamic quantization of whole tensors, a text's vector then does not depend on which texts share its batch, and
one large activation costs its own block some precision instead of all.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from gateway.embedding.encoder import Precision

CONTRIB: Final = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""
BLOCK_COLUMNS: Final = 64

_ZERO_POINT: Final = 128
_OPSET: Final = 18
_IR_VERSION: Final = 9
_COMPUTE_IN_INT8: Final = 4


class GraphBuilder:
    """Builds a graph whose values have names: every method returns the names of what it added."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self._nodes: list[Any] = []
        self._constants: list[TensorProto] = []

    def constant(self, array: NDArray[Any]) -> str:
        """Add a constant tensor."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, operator: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> list[str]:
        """Add an operator with its outputs."""
        number = len(self._nodes)
        names = [f"value_{number}_{place}" for place in range(outputs)]
        made = helper.make_node(operator, inputs, names, domain=domain, name=f"node_{number}", **attributes)
        self._nodes.append(made)
        return names

    def one(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add an operator with one output."""
        return self.node(operator, *inputs, domain=domain, **attributes)[0]

    def table(self, rows: NDArray[np.float32], index: str) -> str:
        """Add a lookup of rows of a table by number; the table is in half precision beside int8 matrices."""
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
        """Return the serialized model; `output` becomes `embedding`."""
        self._nodes.append(helper.make_node("Identity", [output], ["embedding"]))
        result = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, shape)
        graph: GraphProto = helper.make_graph(self._nodes, "encoder", inputs, [result], self._constants)
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(CONTRIB, 1)]
        model: ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        serialized: bytes = model.SerializeToString()
        return serialized


def quantize_blocks(weight: NDArray[np.float32], block: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return `[outputs, blocks, block]` around 128 and `[outputs, blocks]` scales; `block` divides `inputs`."""
    outputs, inputs = weight.shape
    blocks = weight.reshape(outputs, inputs // block, block)
    scales = np.maximum(np.abs(blocks).max(axis=2) / 127, np.finfo(np.float32).tiny).astype(np.float32)
    rounded = np.rint(blocks / scales[..., None])
    return (np.clip(rounded, -127, 127) + _ZERO_POINT).astype(np.uint8), scales
