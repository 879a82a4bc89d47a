"""Records of a decoder: its shape, and the addresses of its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.cpu.gemm.compiled_linear import CompiledLinear
from engine.cpu.gemm.records import RecordMemory
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.layout import ACTIVATIONS, AHEAD, EXPERT, LAYER, MODEL, PROJECTION
from engine.cpu.step.experts import mix_experts
from engine.models.config.config import ModelConfig
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.experts import SparseMLP
from engine.models.layers import HeadGroupNorm, RMSNorm
from engine.models.mlp import MLP, DenseMLP
from engine.models.raw_weights import RawWeight
from engine.quantization.calibrated_linear import CalibratedLinear

_NO_PROJECTION = (0,) * len(PROJECTION.fields or ())
_UNLIMITED = np.iinfo(np.int64).max // 2


class NotCompilable(ValueError):
    """A property of the model that compiled steps do not support; the message names it."""


def check_compilable(config: ModelConfig) -> None:
    """Raise NotCompilable for a model whose steps cannot run compiled; its config alone decides."""
    sizes = {"hidden_size": config.hidden_size, "head_dim": config.head_dim}
    experts = config.traits.experts
    if experts is None or len(experts.layers) < config.num_layers:
        sizes["intermediate_size"] = config.intermediate_size
    if experts is not None:
        sizes["size of an expert"] = experts.size
        sizes["size of the shared expert"] = experts.shared_size or 0
    for name, size in sizes.items():
        if size % LANES:
            raise NotCompilable(f"{name} is {size}, no multiple of {LANES}")
    for is_there, reason in _unsupported(config):
        if is_there:
            raise NotCompilable(reason)


def _unsupported(config: ModelConfig) -> list[tuple[bool, str]]:
    """Return whether the config has each property that compiled steps do not compute, with the words for it."""
    traits, experts = config.traits, config.traits.experts
    return [
        (traits.recurrent is not None, "some layers are recurrent"),
        (traits.has_output_gate, "it gates what attention returns"),
        (traits.has_sinks, "its attention has sinks"),
        (traits.branch_scale is not None, "it scales what branches add"),
        (traits.logit_divisor is not None, "it divides the logits"),
        (bool(traits.unrotated_layers) and config.local_rope is not None, "its layers rotate in three ways"),
        (experts is not None and experts.has_bias, "its router has a bias"),
        (experts is not None and experts.gate_limit is not None, "its experts clamp their gates"),
    ]


class ModelRecords:
    """The MODEL and LAYER records of a decoder, and the memory whose addresses they hold."""

    def __init__(self, decoder: Decoder) -> None:
        """Build the records of a decoder in float32 whose projections were packed at the load.

        Raises:
            NotCompilable: The model has a property that compiled steps do not support.
        """
        check_compilable(decoder.config)
        self._config = decoder.config
        self._memory = RecordMemory()
        self._experts: list[npt.NDArray[Any]] = []
        """Records of the experts of each layer that has any."""
        self._linears: list[CompiledLinear] = []
        self.layers = self._layers(decoder, on_unit=False)
        """Records of the layers, followed by those for the matrix unit where it is used."""
        self.model = np.array([self._shape(decoder)], dtype=MODEL)
        self.norm = self._norm_weight(decoder.norm)
        """Address of the last norm's weight."""
        self.are_inputs_rounded = any(linear.rounds_inputs for linear in self._linears)
        """True if any projection rounds its inputs."""
        # The matrix unit would multiply integer weights as bfloat16 and leave inputs unrounded.
        has_unit = any(linear.unit_record is not None for linear in self._linears)
        self.has_unit = has_unit and not self.are_inputs_rounded
        if self.has_unit:
            self.layers = np.concatenate([self.layers, self._layers(decoder, on_unit=True)])

    def products(self) -> dict[str, int]:
        """Return the number of projections by the kind of their products."""
        found: dict[str, int] = {}
        for linear in self._linears:
            found[linear.kind] = found.get(linear.kind, 0) + 1
        return found

    def _layers(self, decoder: Decoder, *, on_unit: bool) -> npt.NDArray[Any]:
        """Return the records of all layers."""
        found = []
        for index, layer in enumerate(decoder.layers):
            assert isinstance(layer, DecoderLayer)  # recurrent layers were refused by the config
            found.append(self._layer(layer, index, on_unit=on_unit))
        return np.array(found, dtype=LAYER)

    def _shape(self, decoder: Decoder) -> tuple[Any, ...]:
        config, traits = decoder.config, decoder.config.traits
        return (
            config.hidden_size,
            config.intermediate_size,
            len(decoder.layers),
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            0,
            0,
            0,
            mix_experts.address if traits.experts is not None else 0,
            self._projection(decoder.head, on_unit=False),
            np.zeros(1, dtype=AHEAD)[0],
            ACTIVATIONS[traits.activation],
            config.rms_norm_eps,
            decoder.attention_specs[0].scale,
            traits.attention_softcap or 0.0,
            traits.logit_softcap or 0.0,
            decoder.embedding.scale,
        )

    def _layer(self, layer: DecoderLayer, index: int, *, on_unit: bool) -> tuple[Any, ...]:
        window, traits = layer.spec.sliding_window, self._config.traits
        mlp = _MLPFields() if not isinstance(layer.mlp, SparseMLP) else self._sparse(layer.mlp, on_unit=on_unit)
        gate_up, down = self._dense(layer.mlp, on_unit=on_unit)
        return (
            self._norm_weight(layer.attention_norm),
            self._projection(layer.qkv, on_unit=on_unit),
            self._heads_norm(layer.qk_norm),
            isinstance(layer.qk_norm, HeadGroupNorm),
            self._projection(layer.output, on_unit=on_unit),
            self._norm_weight(layer.attended_norm),
            self._norm_weight(layer.mlp_norm),
            gate_up,
            down,
            self._norm_weight(layer.mlp_output_norm),
            mlp.router,
            mlp.experts,
            mlp.num_experts,
            mlp.num_chosen,
            mlp.has_shared_expert,
            mlp.normalizes_shares,
            mlp.widest_expert,
            0,
            0,
            0,
            _UNLIMITED if window is None else window,
            0,
            index in traits.unrotated_layers or (window is not None and self._config.local_rope is not None),
        )

    def _dense(self, mlp: MLP, *, on_unit: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if not isinstance(mlp, DenseMLP):
            return _NO_PROJECTION, _NO_PROJECTION
        return self._projection(mlp.gate_up, on_unit=on_unit), self._projection(mlp.down, on_unit=on_unit)

    def _sparse(self, mlp: SparseMLP, *, on_unit: bool) -> _MLPFields:
        """Return the fields of a layer with experts; the shared expert is the last one."""
        experts = [*mlp.experts, *([] if mlp.shared is None else [mlp.shared.expert])]
        records = [
            (self._projection(expert.gate_up, on_unit=on_unit), self._projection(expert.down, on_unit=on_unit))
            for expert in experts
        ]
        array = np.array(records, dtype=EXPERT)
        self._experts.append(array)
        scores = mlp.router.weight if mlp.shared is None else torch.cat([mlp.router.weight, mlp.shared.gate])
        return _MLPFields(
            self._memory.projection(RawWeight(scores, None, None)),
            array.ctypes.data,
            len(mlp.experts),
            mlp.router.num_chosen,
            mlp.shared is not None,
            mlp.router.is_normalized,
            int(array["down"]["num_inputs"].max()),
        )

    def _projection(self, linear: object, *, on_unit: bool) -> tuple[int, ...]:
        if isinstance(linear, CalibratedLinear):
            linear = linear.settled
        if not isinstance(linear, CompiledLinear):
            raise NotCompilable(f"a projection is a {type(linear).__name__}, whose weights are not packed")
        if not on_unit:
            self._linears.append(linear)
        return linear.record if linear.unit_record is None or not on_unit else linear.unit_record

    def _heads_norm(self, norm: RMSNorm | HeadGroupNorm | None) -> int:
        if isinstance(norm, HeadGroupNorm):
            return self._memory.address(torch.cat([norm.queries.weight, norm.keys.weight]))
        return self._norm_weight(norm)

    def _norm_weight(self, norm: RMSNorm | None) -> int:
        return 0 if norm is None else self._memory.address(norm.weight)


@dataclass(frozen=True, slots=True)
class _MLPFields:
    """Fields of a LAYER record that describe experts; a dense layer has none."""

    router: tuple[int, ...] = _NO_PROJECTION
    experts: int = 0
    num_experts: int = 0
    num_chosen: int = 0
    has_shared_expert: bool = False
    normalizes_shares: bool = False
    widest_expert: int = 0
