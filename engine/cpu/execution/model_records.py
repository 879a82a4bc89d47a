"""Records of a decoder: its shape, and the addresses of its weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.cpu.gemm import pair_tiles
from engine.cpu.gemm.matrix_unit import is_permitted
from engine.cpu.gemm.records import RecordMemory
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.layout import AHEAD, LAYER, MODEL, PROJECTION
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.layers import RMSNorm
from engine.models.mlp import DenseMLP
from engine.models.raw_weights import RawWeights

_PROJECTIONS = ("qkv", "output", "gate_up", "down")
_HALF_BYTES = 2
"""Size of a weight in bfloat16."""


class NotCompilable(ValueError):
    """A property of the model that compiled steps do not support; the message names it."""


class ModelRecords:
    """The MODEL and LAYER records of a decoder, and the memory whose addresses they hold."""

    def __init__(self, decoder: Decoder, weights: RawWeights) -> None:
        """Build the records.

        Args:
            decoder: Model in float32.
            weights: Unpacked weights of the projections.

        Raises:
            NotCompilable: The model has a property that compiled steps do not support.
        """
        self._weights = weights
        self._memory = RecordMemory()
        decoder_layers = [layer for layer in decoder.layers if isinstance(layer, DecoderLayer)]
        _check(len(decoder_layers) == len(decoder.layers), "some layers are recurrent")
        layers = [self._layer(layer) for layer in decoder_layers]
        self.layers = np.array(layers, dtype=LAYER)
        """Records of the layers, followed by those for the matrix unit where it is used."""
        self.model = np.array([self._shape(decoder)], dtype=MODEL)
        self.norm = self._norm_weight(decoder.norm)
        """Address of the last norm's weight."""
        in_layers = any(self.layers[name]["rounds"].any() for name in _PROJECTIONS)
        self.are_inputs_rounded = in_layers or bool(self.model["head"]["rounds"][0])
        """True if any projection rounds its inputs."""
        # The matrix unit would multiply integer weights as bfloat16 and leave inputs unrounded.
        self.has_unit = is_permitted() and not self.are_inputs_rounded
        if self.has_unit:
            self.layers = np.concatenate([self.layers, self._on_unit(decoder_layers)])

    def pair_inputs(self) -> None:
        """Round the inputs of all weights in bfloat16 to bfloat16 as well, if the processor multiplies such pairs.

        The matrix unit computes exact float32 at a higher rate, so its processors keep all inputs.
        """
        if not pair_tiles.IS_THERE or self.has_unit:
            return
        for name in _PROJECTIONS:
            self.layers[name]["is_paired"] = self.layers[name]["weight_bytes"] == _HALF_BYTES
        self.model["head"]["is_paired"] = self.model["head"]["weight_bytes"] == _HALF_BYTES

    def _on_unit(self, layers: list[DecoderLayer]) -> Any:
        """Return the records of the layers with weights for the matrix unit."""
        found = self.layers.copy()
        for index, layer in enumerate(layers):
            assert isinstance(layer.mlp, DenseMLP)
            of_layer = {"qkv": layer.qkv, "output": layer.output, "gate_up": layer.mlp.gate_up, "down": layer.mlp.down}
            for name, linear in of_layer.items():
                retained = self._weights.of(linear)
                assert retained is not None
                found[name]["halves"][index] = self._memory.halves(retained, int(found[name]["packed"][index]))
        return found

    def _shape(self, decoder: Decoder) -> tuple[Any, ...]:
        config = decoder.config
        for name in ("hidden_size", "intermediate_size", "head_dim"):
            size = getattr(config, name)
            _check(size % LANES == 0, f"{name} is {size}, no multiple of {LANES}")
        _check(decoder.local_rotary is None, "some layers rotate otherwise")
        _check(not config.traits.has_output_gate, "it gates what attention returns")
        _check(decoder.still_rotary is None, "some layers do not rotate")
        _check(config.traits.embedding_scale is None, "embeddings are scaled")
        _check(config.traits.branch_scale is None, "it scales what branches add")
        return (
            config.hidden_size,
            config.intermediate_size,
            len(decoder.layers),
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            0,
            0,
            self._head(decoder),
            np.zeros(1, dtype=AHEAD)[0],
            config.rms_norm_eps,
            decoder.attention_specs[0].scale,
        )

    def _layer(self, layer: DecoderLayer) -> tuple[Any, ...]:
        mlp = layer.mlp
        _check(type(layer) is DecoderLayer, "its layers are fused")
        _check(layer.attended_norm is None and layer.mlp_output_norm is None, "it norms what branches add")
        _check(layer.spec.softcap is None, "it caps attention scores")
        _check(layer.spec.sinks is None, "its attention has sinks")
        _check(isinstance(mlp, DenseMLP) and mlp.activation == "silu", "its MLP is no gated SiLU")
        assert isinstance(mlp, DenseMLP)
        _check(layer.qk_norm is None or isinstance(layer.qk_norm, RMSNorm), "it norms heads together")
        window = layer.spec.sliding_window
        return (
            self._norm_weight(layer.attention_norm),
            self._projection(layer.qkv),
            0 if layer.qk_norm is None else self._norm_weight(layer.qk_norm),
            self._projection(layer.output),
            self._norm_weight(layer.mlp_norm),
            self._projection(mlp.gate_up),
            self._projection(mlp.down),
            0,
            0,
            np.iinfo(np.int64).max // 2 if window is None else window,
        )

    def _projection(self, linear: object) -> tuple[int, ...]:
        retained = self._weights.of(linear)
        _check(retained is not None, "its weights are quantized to groups, shared or no float32")
        assert retained is not None
        return self._memory.projection(retained)

    def _head(self, decoder: Decoder) -> tuple[int, ...]:
        """Return the record of the vocabulary projection; zeros if it cannot run compiled."""
        try:
            return self._projection(decoder.head)
        except NotCompilable:
            return (0,) * len(PROJECTION.fields or ())

    def _norm_weight(self, norm: object) -> int:
        _check(isinstance(norm, RMSNorm), "a layer has no norm before it")
        assert isinstance(norm, RMSNorm)
        return self._memory.address(norm.weight)


def _check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise NotCompilable(otherwise)
