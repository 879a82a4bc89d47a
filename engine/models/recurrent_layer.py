"""Decoder layer with a recurrent state in place of keys and values: gated delta net and MLP."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.nn import functional

from engine.attention.base import ForwardContext, StateUse
from engine.attention.gated_delta import DeltaInputs, convolve, normalize_keys, run_sequence, step_states
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
        size = 2 ** (num_slots - 1).bit_length()
        # Ordinary tensors can be written both in and out of inference mode.
        with torch.inference_mode(False):
            shape = (size, traits.num_value_heads, traits.key_dim, traits.value_dim)
            states = torch.zeros(shape, dtype=torch.float32, device=device)
            inputs = torch.zeros(size, traits.window - 1, traits.num_channels, dtype=dtype, device=device)
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
    memory: StateMemory = field(default_factory=StateMemory)

    def apply(self, inputs: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        """Return the outputs [T, hidden] of inputs [T, hidden]; the context's states are read and written.

        Raises:
            RuntimeError: The context names no states.
        """
        if context.states is None:
            raise RuntimeError("recurrent layers need the states of the step's sequences")
        channels = self.qkv.apply(inputs)
        rates, decays = self.rates_decays.apply(inputs).float().chunk(2, 1)
        rates = rates.sigmoid()
        decays = self.decay_rate * functional.softplus(decays + self.decay_bias)
        num_slots = 1 + max(use.last_slot for use in context.states)
        self.memory.reserve(num_slots, self.traits, channels.dtype, channels.device)
        mixed = torch.empty(inputs.shape[0], self.traits.num_value_heads, self.traits.value_dim, device=inputs.device)
        single = []
        for seq, use in enumerate(context.states):
            start, end = context.query_starts[seq : seq + 2]
            if end - start == 1 and use.read is not None:
                single.append((start, use.read, use.write))
            elif end > start:
                tokens = slice(start, end)
                mixed[tokens] = self._run(channels[tokens], (rates[tokens], decays[tokens]), use)
        if single:
            at, reads, writes = torch.tensor(single, device=inputs.device).unbind(1)
            mixed[at] = self._step(channels[at], (rates[at], decays[at]), reads, writes)
        gate = functional.silu(self.gate.apply(inputs).float()).view(mixed.shape)
        self.norm.into(mixed, mixed)
        return self.output.apply(mixed.mul_(gate).flatten(1).to(inputs.dtype))

    def _step(
        self, channels: torch.Tensor, rates_decays: _RatesDecays, reads: torch.Tensor, writes: torch.Tensor
    ) -> torch.Tensor:
        """Advance sequences by one token each: [N, value heads, value_dim]."""
        memory = self.memory
        window = torch.cat((memory.inputs[reads], channels.unsqueeze(1)), 1)
        inputs = self._inputs(convolve(window, self.convolution).squeeze(1), rates_decays)
        outputs, states = step_states(memory.states[reads], inputs)
        memory.states[writes], memory.inputs[writes] = states, window[:, 1:]
        return outputs

    def _run(self, channels: torch.Tensor, rates_decays: _RatesDecays, use: StateUse) -> torch.Tensor:
        """Advance one sequence by several tokens: [T, value heads, value_dim]."""
        memory, traits = self.memory, self.traits
        if use.read is None:
            state = memory.states.new_zeros(memory.states.shape[1:])
            history = channels.new_zeros(traits.window - 1, traits.num_channels)
        else:
            state, history = memory.states[use.read], memory.inputs[use.read]
        window = torch.cat((history, channels))
        inputs = self._inputs(convolve(window, self.convolution), rates_decays)
        outputs, start = [], 0
        for end, slot in (*use.saved, (channels.shape[0], use.write)):
            output, state = run_sequence(state, inputs.cut(slice(start, end)))
            memory.states[slot], memory.inputs[slot] = state, window[end : end + traits.window - 1]
            outputs.append(output)
            start = end
        return torch.cat(outputs)

    def _inputs(self, channels: torch.Tensor, rates_decays: _RatesDecays) -> DeltaInputs:
        """Return the inputs of each value head from convolved channels [T, channels]."""
        traits = self.traits
        size = traits.num_key_heads * traits.key_dim
        queries, keys, values = channels.tensor_split((size, 2 * size), 1)
        shared = traits.num_value_heads // traits.num_key_heads
        queries, keys = (
            normalize_keys(part.view(-1, traits.num_key_heads, traits.key_dim)).repeat_interleave(shared, 1)
            for part in (queries, keys)
        )
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
