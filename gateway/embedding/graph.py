"""Graph of the encoder: BERT (Devlin et al., 2019), mean pooling (Reimers & Gurevych, 2019), unit length.

The nodes are written one by one from the safetensors, with ONNX Runtime's fused operators for transformers. That needs
no export, tracing, optimiser or torch.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper
from safetensors.numpy import load_file

from gateway.embedding.encoder import Precision
from gateway.embedding.graph_builder import CONTRIB, GraphBuilder
from gateway.embedding.model_files import ModelFiles

_PARTS: Final = ("query", "key", "value")
_WORDS: Final = "embeddings.word_embeddings.weight"


def build_graph(files: ModelFiles, precision: Precision) -> bytes:
    """Return the serialized model of the encoder.

    It maps `ids` and `mask` (`[texts, tokens]`, int32) to `embedding` (`[texts, dimensions]`).
    """
    return _Bert(files, precision).build()


class _Bert:
    def __init__(self, files: ModelFiles, precision: Precision) -> None:
        self._shape = files.shape
        self._graph = GraphBuilder(precision)
        self._weights: dict[str, NDArray[np.float32]] = _plain_names(load_file(files.weights))

    def build(self) -> bytes:
        value = self._embed()
        for number in range(self._shape.num_layers):
            value = self._layer(value, f"encoder.layer.{number}.")
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT32, ["texts", "tokens"]) for name in ("ids", "mask")
        ]
        return self._graph.finish(inputs, self._pool(value), ["texts", self._shape.dimensions])

    def _embed(self) -> str:
        graph = self._graph
        words = graph.table(self._tensor("embeddings.word_embeddings.weight"), "ids")
        # All tokens are of the first segment.
        places = self._tensor("embeddings.position_embeddings.weight")
        places = places[self._shape.first_position :] + self._tensor("embeddings.token_type_embeddings.weight")[0]
        zero = graph.constant(np.zeros(1, np.int64))
        num_tokens = graph.one("Shape", "ids", start=1, end=2)
        placed = graph.one("Add", words, graph.one("Slice", graph.constant(places), zero, num_tokens, zero))
        norm = self._norm("embeddings.LayerNorm")
        return graph.one("LayerNormalization", placed, *norm, epsilon=self._shape.epsilon)

    def _layer(self, value: str, prefix: str) -> str:
        graph = self._graph
        attended = graph.linear(self._attend(value, prefix), self._tensor(prefix + "attention.output.dense.weight"))
        value = self._add_and_norm(attended, value, prefix + "attention.output.")
        inner = graph.linear(value, self._tensor(prefix + "intermediate.dense.weight"))
        inner = graph.one("BiasGelu", inner, self._constant(prefix + "intermediate.dense.bias"), domain=CONTRIB)
        outer = graph.linear(inner, self._tensor(prefix + "output.dense.weight"))
        return self._add_and_norm(outer, value, prefix + "output.")

    def _attend(self, value: str, prefix: str) -> str:
        """Add self-attention, with queries, keys and values from one product of three times the width."""
        graph = self._graph
        weight, bias = (
            np.concatenate([self._tensor(f"{prefix}attention.self.{part}.{kind}") for part in _PARTS])
            for kind in ("weight", "bias")
        )
        parts = graph.node("Split", graph.linear(value, weight), outputs=3, axis=-1, num_outputs=3)
        inputs = (*parts, graph.constant(bias), "mask")
        return graph.one("MultiHeadAttention", *inputs, domain=CONTRIB, num_heads=self._shape.num_heads)

    def _add_and_norm(self, value: str, residual: str, prefix: str) -> str:
        """Add bias, residual and layer norm as three operators; the fused one takes twice their time on a CPU."""
        graph = self._graph
        biased = graph.one("Add", value, self._constant(prefix + "dense.bias"))
        norm = self._norm(prefix + "LayerNorm")
        return graph.one("LayerNormalization", graph.one("Add", biased, residual), *norm, epsilon=self._shape.epsilon)

    def _pool(self, value: str) -> str:
        """Normalise the first token's vector, or the sum over a text's tokens, which points to their mean."""
        graph = self._graph
        if self._shape.pooling == "cls":
            first = graph.constant(np.zeros((), np.int64))
            return graph.one("LpNormalization", graph.one("Gather", value, first, axis=1), axis=-1, p=2)
        axis = graph.constant(np.ones(1, np.int64))
        weights = graph.one("Unsqueeze", graph.one("Cast", "mask", to=TensorProto.FLOAT), axis)
        pooled = graph.one("Squeeze", graph.one("MatMul", weights, value), axis)
        return graph.one("LpNormalization", pooled, axis=-1, p=2)

    def _norm(self, name: str) -> tuple[str, str]:
        return self._constant(name + ".weight"), self._constant(name + ".bias")

    def _constant(self, name: str) -> str:
        return self._graph.constant(self._tensor(name))

    def _tensor(self, name: str) -> NDArray[np.float32]:
        return self._weights[name]


def _plain_names(weights: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    """Return the weights in single precision, by names without the prefix that some checkpoints put before all."""
    prefix = next((name.partition(_WORDS)[0] for name in weights if _WORDS in name), "")
    return {name.removeprefix(prefix): tensor.astype(np.float32, copy=False) for name, tensor in weights.items()}
