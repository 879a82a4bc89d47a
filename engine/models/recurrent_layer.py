"""Decoder layer with a recurrent state in place of keys and values: gated delta net and MLP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.nn import functional

from engine.attention.base import ForwardContext
from engine.attention.gated_delta import DeltaInputs, convolve, normalize_keys
from engine.attention.step_states import StepStates
from engine.models.activations import Activations
from engine.models.config.config import RecurrentTraits
from engine.models.layers import RMSNorm
from engine.models.linear import Linear
from engine.models.mlp import MLP

_RatesDecays = tuple[torch.Tensor, torch.Tensor]
"""Rates and logarithms of decays, float32 [T, value heads]."""


class StateMemory:
    """States of one layer by slot, grown to the largest slot in use."""

    def __init__(self) -> None:
        self.states = self.inputs = torch.empty(0)

    def reserve(self, num_slots: int, traits: RecurrentTraits, dtype: torch.dtype, device: torch.device) -> None:
        """Grow to `num_slots` slots, with the content so far."""
        if num_slots <= self.states.shape[0]:
            return
        # Ordinary tensors can be written both in and out of inference mode.
        with torch.inference_mode(False):
            shape = (num_slots, traits.num_value_heads, traits.key_dim, traits.value_dim)
            states = torch.zeros(shape, dtype=torch.float32, device=device)
            inputs = torch.zeros(num_slots, traits.window - 1, traits.num_channels, dtype=dtype, device=device)
        old = self.states.shape[0]
        if old:
            states[:old].copy_(self.states)
            inputs[:old].copy_(self.inputs)
        self.states, self.inputs = states, inputs


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """Mixer of a recurrent layer."""

    traits: RecurrentTraits
    qkv: Linear
    """Projection to the inputs of the convolution: queries, keys and values."""
    gate: Linear
    rates_decays: Linear
    """Projection to each value head's rate and decay, before their functions."""
    convolution: torch.Tensor
    """[window, channels]."""
    decay_rate: torch.Tensor
    """float32 [value heads]: factor of the logarithm of the decay."""
    decay_bias: torch.Tensor
    """float32 [value heads]."""
    norm: RMSNorm
    output: Linear
    advance: Callable[[torch.Tensor, StepStates, DeltaInputs], torch.Tensor]
    """Advances the states of a step's sequences: `engine.attention.gated_delta.advance`, or the same as one kernel."""
    memory: StateMemory = field(default_factory=StateMemory)

    def apply(self, inputs: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Return the outputs [T, hidden] of inputs [T, hidden]; the context's states are read and written.

        Raises:
            RuntimeError: The context names no states.
        """
        states = context.states
        if states is None:
            raise RuntimeError("recurrent layers need the states of the step's sequences")
        channels = self.qkv.apply(inputs)
        rates, decays = self.rates_decays.apply(inputs).float().chunk(2, 1)
        rates = rates.sigmoid()
        decays = self.decay_rate * functional.softplus(decays + self.decay_bias)
        self.reserve(states.num_slots, channels.dtype, channels.device)
        convolved = self._convolve(channels, states)
        mixed = self.advance(self.memory.states, states, self._inputs(convolved, (rates, decays)))
        gate = functional.silu(self.gate.apply(inputs).float()).view(mixed.shape)
        self.norm.into(mixed, mixed)
        return self.output.apply(mixed.mul_(gate).flatten(1).to(inputs.dtype))

    def _convolve(self, channels: torch.Tensor, states: StepStates) -> torch.Tensor:
        """Convolve the step's channels [T, channels]; the last inputs before each written state are stored with it."""
        memory, size = self.memory, self.traits.num_channels
        earlier = memory.inputs[states.reads]
        if states.begins is not None:
            earlier[states.begins] = 0
        found = torch.cat((earlier.view(-1, size), channels))
        memory.inputs[states.written] = found[states.cut_windows]
        return convolve(found, states.windows, self.convolution)

    def reserve(self, num_slots: int, dtype: torch.dtype, device: torch.device) -> None:
        """Have at least so many slots; twice as many as before, so that few steps copy states."""
        num_held = self.memory.states.shape[0]
        if num_slots > num_held:
            self.memory.reserve(max(num_slots, 2 * num_held), self.traits, dtype, device)

    def _inputs(self, channels: torch.Tensor, rates_decays: _RatesDecays) -> DeltaInputs:
        """Return the inputs of each value head from convolved channels [T, channels]."""
        traits = self.traits
        size = traits.num_key_heads * traits.key_dim
        queries, keys, values = channels.tensor_split((size, 2 * size), 1)
        shared = traits.num_value_heads // traits.num_key_heads
        queries, keys = (
            normalize_keys(part.view(-1, traits.num_key_heads, traits.key_dim)) for part in (queries, keys)
        )
        if traits.has_tiled_values:
            queries, keys = queries.repeat(1, shared, 1), keys.repeat(1, shared, 1)
        else:
            queries, keys = queries.repeat_interleave(shared, 1), keys.repeat_interleave(shared, 1)
        values = values.float().view(-1, traits.num_value_heads, traits.value_dim)
        rates, decays = rates_decays
        return DeltaInputs(queries * traits.key_dim**-0.5, keys, values, decays, rates)


@dataclass(frozen=True, slots=True)
class RecurrentLayer:
    """Decoder layer whose mixer has a state instead of keys and values."""

    mixer_norm: RMSNorm
    mixer: GatedDeltaNet
    mlp_norm: RMSNorm
    mlp: MLP

    def forward(self, activations: Activations, context: ForwardContext) -> None:
        """Compute the layer and update the residual in place."""
        self.mixer_norm.into(activations.residual, activations.normed)
        activations.residual.add_(self.mixer.apply(activations.normed, context))
        self.mlp_norm.into(activations.residual, activations.normed)
        self.mlp.add_to(activations.residual, activations.normed, activations)
