"""Gated delta rule: a linear attention whose state decays and replaces what it holds under a key (arXiv 2412.06464).

A head's state S [key_dim, value_dim] follows, for a token with key k, value v, decay a = exp(g) and rate b:

    S ← a S;  S ← S + k ⊗ b (v - Sᵀ k);  output = Sᵀ q
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch.nn import functional

from engine.attention.step_states import StepStates

_CHUNK = 64
"""Number of tokens whose updates are solved together."""
_EPS = 1e-6


def normalize_keys(vectors: torch.Tensor) -> torch.Tensor:
    """Return the vectors [..., key_dim] divided by their lengths, float32."""
    vectors = vectors.float()
    return vectors * torch.rsqrt(vectors.square().sum(-1, keepdim=True) + _EPS)


class DeltaInputs(NamedTuple):
    """Inputs of N tokens, float32."""

    queries: torch.Tensor
    """[N, heads, key_dim], scaled."""
    keys: torch.Tensor
    """[N, heads, key_dim]."""
    values: torch.Tensor
    """[N, heads, value_dim]."""
    decays: torch.Tensor
    """[N, heads]: logarithms of the decays."""
    rates: torch.Tensor
    """[N, heads]."""

    def cut(self, tokens: slice) -> DeltaInputs:
        """Return the inputs of these tokens."""
        return DeltaInputs(*(part[tokens] for part in self))


def step_states(states: torch.Tensor, inputs: DeltaInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Advance the states of N sequences by one token each.

    Args:
        states: float32 [N, heads, key_dim, value_dim].
        inputs: Each sequence's token.

    Returns:
        Outputs [N, heads, value_dim], and new states.
    """
    queries, keys, values, decays, rates = inputs
    decayed = states * decays.exp()[..., None, None]
    known = torch.einsum("nhkv,nhk->nhv", decayed, keys)
    change = (values - known) * rates.unsqueeze(-1)
    states = decayed + keys.unsqueeze(-1) * change.unsqueeze(-2)
    return torch.einsum("nhkv,nhk->nhv", states, queries), states


def run_sequence(state: torch.Tensor, inputs: DeltaInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Advance the state of one sequence by T tokens.

    Args:
        state: float32 [heads, key_dim, value_dim].
        inputs: Its tokens.

    Returns:
        Outputs [T, heads, value_dim], and the new state.
    """
    outputs = []
    for start in range(0, inputs.queries.shape[0], _CHUNK):
        output, state = _run_chunk(state, inputs.cut(slice(start, start + _CHUNK)))
        outputs.append(output.transpose(0, 1))
    return torch.cat(outputs), state


def _run_chunk(state: torch.Tensor, inputs: DeltaInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Solve the updates of C tokens together; outputs are [heads, C, value_dim].

    The change of token i depends on those before it: (I + L) changes = rates * (values - decayed reads of the state),
    with L lower triangular.
    """
    queries, keys, values, decays, rates = (part.transpose(0, 1) for part in inputs)
    total = decays.cumsum(1)
    later = torch.ones(total.shape[1], total.shape[1], dtype=torch.bool, device=total.device).triu_(1)
    between = (total.unsqueeze(2) - total.unsqueeze(1)).masked_fill_(later, float("-inf")).exp_()
    scaled_keys = keys * rates.unsqueeze(2)
    lower = (scaled_keys @ keys.mT) * between
    wanted = values * rates.unsqueeze(2) - (scaled_keys * total.exp().unsqueeze(2)) @ state
    changes = torch.linalg.solve_triangular(lower, wanted, upper=False, unitriangular=True)
    outputs = (queries * total.exp().unsqueeze(2)) @ state + ((queries @ keys.mT) * between) @ changes
    left = (total[:, -1:] - total).exp().unsqueeze(2)
    return outputs, state * total[:, -1].exp()[:, None, None] + (keys * left).mT @ changes


def advance(states: torch.Tensor, step: StepStates, inputs: DeltaInputs) -> torch.Tensor:
    """Advance the states of a step's sequences.

    Args:
        states: float32 [slots, heads, key_dim, value_dim], changed in place.
        step: Slots of the sequences.
        inputs: All tokens of the step.

    Returns:
        Outputs [T, heads, value_dim].
    """
    outputs = torch.empty_like(inputs.values)
    single: list[tuple[int, int, int]] = []
    for use, (start, end) in zip(step.uses, pairwise(step.query_starts), strict=True):
        if end - start == 1 and use.read is not None:
            single.append((start, use.read, use.write))
            continue
        state = torch.zeros_like(states[0]) if use.read is None else states[use.read]
        done = start
        for cut, slot in (*use.saved, (end - start, use.write)) if end > start else ():
            tokens = slice(done, start + cut)
            outputs[tokens], state = run_sequence(state, inputs.cut(tokens))
            states[slot] = state
            done = start + cut
    if single:
        at, reads, writes = torch.tensor(single).unbind(1)
        outputs[at], states[writes] = step_states(states[reads], DeltaInputs(*(part[at] for part in inputs)))
    return outputs


def convolve(inputs: torch.Tensor, windows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return SiLU of each channel's weighted sum over a window of inputs.

    Args:
        inputs: [N, channels].
        windows: int64 [T, K]: indices of each window's inputs, the newest last.
        weight: [K, channels], the newest input's last.

    Returns:
        [T, channels].
    """
    mixed = inputs[windows[:, 0]] * weight[0]
    for place in range(1, weight.shape[0]):
        mixed.addcmul_(inputs[windows[:, place]], weight[place])
    return functional.silu(mixed)
