"""Records of a decoder: its shape, and the addresses of its weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.cpu.gemm.compiled_linear import CompiledLinear
from engine.cpu.gemm.records import RecordMemory
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.layout import ACTIVATIONS, AHEAD, EXPERT, LAYER, MODEL, RECURRENT
from engine.cpu.step.experts import mix_experts
from engine.cpu.step.recurrence import mix_states
from engine.models.config.config import ModelConfig
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.experts import SparseMLP
from engine.models.layers import HeadGroupNorm, RMSNorm
from engine.models.mlp import MLP, DenseMLP
from engine.models.raw_weights import RawWeight
from engine.models.recurrent_layer import GatedDeltaNet, RecurrentLayer
from engine.quantization.calibrated_linear import CalibratedLinear

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
    if config.traits.recurrent is not None:
        sizes["linear_value_head_dim"] = config.traits.recurrent.value_dim
    for name, size in sizes.items():
        if size % LANES:
            raise NotCompilable(f"{name} is {size}, no multiple of {LANES}")
    for is_there, reason in _unsupported(config):
        if is_there:
            raise NotCompilable(reason)


def _unsupported(config: ModelConfig) -> list[tuple[bool, str]]:
    """Return whether the config has each property that compiled steps do not compute, with the words for it."""
    traits, experts, recurrent = config.traits, config.traits.experts, config.traits.recurrent
    return [
        (recurrent is not None and len(recurrent.layers) == config.num_layers, "all of its layers are recurrent"),
        (bool(traits.unrotated_layers) and config.local_rope is not None, "its layers rotate in three ways"),
        (
            experts is not None and experts.has_bias and experts.shared_size is not None,
            "its router has a bias beside a shared expert",
        ),
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
        self._recurrent: list[tuple[GatedDeltaNet, npt.NDArray[Any]]] = []
        """Gated delta nets and the records that hold the addresses of their states."""
        self._state_memory: torch.Tensor | None = None
        self._linears: list[CompiledLinear] = []
        self.layers = self._layers(decoder, on_unit=False)
        """Records of the layers, followed by those for the matrix unit where it is used."""
        self.attention_layers = [i for i, layer in enumerate(decoder.layers) if isinstance(layer, DecoderLayer)]
        """Indices of the layers with keys and values."""
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

    def reserve_states(self, num_slots: int) -> None:
        """Have memory for the recurrent states of so many slots; its addresses change when it grows."""
        for mixer, _ in self._recurrent:
            mixer.reserve(num_slots, torch.float32, torch.device("cpu"))
        memory = self._recurrent[0][0].memory.states
        if memory is not self._state_memory:
            self._state_memory = memory
            for mixer, record in self._recurrent:
                record["states"], record["inputs"] = mixer.memory.states.data_ptr(), mixer.memory.inputs.data_ptr()

    def _layers(self, decoder: Decoder, *, on_unit: bool) -> npt.NDArray[Any]:
        """Return the records of all layers."""
        found = np.zeros(len(decoder.layers), dtype=LAYER)
        for index, layer in enumerate(decoder.layers):
            if isinstance(layer, RecurrentLayer):
                fields = self._recurrent_layer(layer, on_unit=on_unit)
            else:
                fields = self._attention_layer(layer, index, on_unit=on_unit)
            for name, value in (fields | self._mlp(layer.mlp, on_unit=on_unit)).items():
                found[name][index] = value
        return found

    def _shape(self, decoder: Decoder) -> tuple[Any, ...]:
        config, traits = decoder.config, decoder.config.traits
        experts = traits.experts
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
            mix_experts.address if experts is not None else 0,
            mix_states.address if traits.recurrent is not None else 0,
            self._projection(decoder.head, on_unit=False),
            np.zeros(1, dtype=AHEAD)[0],
            ACTIVATIONS[traits.activation],
            config.rms_norm_eps,
            decoder.attention_specs[0].scale,
            traits.attention_softcap or 0.0,
            traits.logit_softcap or 0.0,
            1.0 / (traits.logit_divisor or 1.0),
            decoder.embedding.scale,
            traits.branch_scale or 1.0,
            0.0 if experts is None else experts.gate_limit or 0.0,
            0.0 if experts is None else experts.gate_gain,
        )

    def _attention_layer(self, layer: DecoderLayer, index: int, *, on_unit: bool) -> dict[str, Any]:
        """Return the fields of a layer that attends."""
        window, traits = layer.spec.sliding_window, self._config.traits
        fields = {
            "attention_norm": self._norm_weight(layer.attention_norm),
            "qkv": self._projection(layer.qkv, on_unit=on_unit),
            "qk_norm": self._heads_norm(layer.qk_norm),
            "norms_heads_together": isinstance(layer.qk_norm, HeadGroupNorm),
            "output": self._projection(layer.output, on_unit=on_unit),
            "attended_norm": self._norm_weight(layer.attended_norm),
            "mlp_norm": self._norm_weight(layer.mlp_norm),
            "mlp_output_norm": self._norm_weight(layer.mlp_output_norm),
            "window": _UNLIMITED if window is None else window,
            "is_local": index in traits.unrotated_layers
            or (window is not None and self._config.local_rope is not None),
        }
        if layer.spec.sinks is not None:
            fields["sinks"] = self._memory.address(layer.spec.sinks)
        if layer.output_gate is not None:
            fields["output_gate"] = self._projection(layer.output_gate, on_unit=on_unit)
        return fields

    def _recurrent_layer(self, layer: RecurrentLayer, *, on_unit: bool) -> dict[str, Any]:
        """Return the fields of a layer with a gated delta net; its states get their addresses before a step."""
        mixer = layer.mixer
        traits, record = mixer.traits, np.zeros(1, dtype=RECURRENT)
        fields = {
            "qkv": self._projection(mixer.qkv, on_unit=on_unit),
            "gate": self._projection(mixer.gate, on_unit=on_unit),
            "rates_decays": self._projection(mixer.rates_decays, on_unit=on_unit),
            "convolution": self._memory.address(mixer.convolution),
            "decay_rate": self._memory.address(mixer.decay_rate),
            "decay_bias": self._memory.address(mixer.decay_bias),
            "norm": self._norm_weight(mixer.norm),
            "num_key_heads": traits.num_key_heads,
            "num_value_heads": traits.num_value_heads,
            "key_dim": traits.key_dim,
            "value_dim": traits.value_dim,
            "window": traits.window,
            "has_tiled_values": traits.has_tiled_values,
        }
        for name, value in fields.items():
            record[name] = value
        self._recurrent.append((mixer, record))
        return {
            "attention_norm": self._norm_weight(layer.mixer_norm),
            "output": self._projection(mixer.output, on_unit=on_unit),
            "mlp_norm": self._norm_weight(layer.mlp_norm),
            "recurrent": record.ctypes.data,
        }

    def _mlp(self, mlp: MLP, *, on_unit: bool) -> dict[str, Any]:
        """Return the fields of a layer's MLP or experts; the shared expert is the last one."""
        if isinstance(mlp, DenseMLP):
            gate_up, down = (self._projection(linear, on_unit=on_unit) for linear in (mlp.gate_up, mlp.down))
            return {"gate_up": gate_up, "down": down}
        assert isinstance(mlp, SparseMLP)
        experts = [*mlp.experts, *([] if mlp.shared is None else [mlp.shared.expert])]
        records = [
            (self._projection(expert.gate_up, on_unit=on_unit), self._projection(expert.down, on_unit=on_unit))
            for expert in experts
        ]
        array = np.array(records, dtype=EXPERT)
        self._experts.append(array)
        scores = mlp.router.weight if mlp.shared is None else torch.cat([mlp.router.weight, mlp.shared.gate])
        return {
            "router": self._memory.projection(RawWeight(scores, None, mlp.router.bias)),
            "experts": array.ctypes.data,
            "num_experts": len(mlp.experts),
            "num_chosen": mlp.router.num_chosen,
            "has_shared_expert": mlp.shared is not None,
            "normalizes_shares": mlp.router.is_normalized,
            "widest_expert": int(array["down"]["num_inputs"].max()),
        }

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
