"""Gathered keys and values of decoding sequences: what was stored is attended to, and each step adds its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.attention.base import AttentionSpec
from engine.attention.decoded import Decoded
from engine.attention.gathered_layout import Layout
from engine.attention.gathered_rows import GatheredPlan, GatheredSequences, Span

SPEC = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=8, scale=0.3)
LENGTHS = [5, 3]


def state(lengths: list[int]) -> Decoded:
    return Decoded([0, 1], [0, 1], lengths, np.array([[0, 1], [2, 3]]))


def attended(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """Return attention written out; keys and values are [num_seqs, width, kv_heads, head_dim]."""
    out = torch.empty_like(queries)
    for seq, length in enumerate(lengths):
        for head in range(SPEC.num_heads):
            scores = keys[seq, :length, head // 2] @ queries[seq, head] * SPEC.scale
            out[seq, head] = scores.softmax(0) @ values[seq, :length, head // 2]
    return out


def mask_of(lengths: list[int], width: int) -> torch.Tensor:
    is_seen = torch.arange(width) < torch.tensor(lengths)[:, None]
    return torch.zeros(2, width).masked_fill_(~is_seen, float("-inf")).view(2, 1, 1, width)


@pytest.fixture
def filled() -> tuple[GatheredSequences, GatheredPlan, Span, torch.Tensor, torch.Tensor]:
    layout = Layout().next({}, LENGTHS, [0, 1], block_size=4, max_slots=1000)
    assert layout is not None
    first = state(LENGTHS)
    plan = GatheredPlan.of(layout, (), SPEC, first, None)
    span = Span(layout.groups[0].start, 2, layout.groups[0].width)
    keys, values = torch.randn(2, 2, span.width, 2, 8, generator=torch.Generator().manual_seed(3)).unbind()
    gathered = GatheredSequences()
    gathered.begin(plan, SPEC)
    gathered.fill(span, keys.flatten(0, 1), values.flatten(0, 1), SPEC)
    gathered.state = first
    return gathered, plan, span, keys, values


def test_stored_sequences_are_attended_to_up_to_their_lengths(
    filled: tuple[GatheredSequences, GatheredPlan, Span, torch.Tensor, torch.Tensor],
) -> None:
    gathered, _, span, keys, values = filled
    queries = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(4))
    found = gathered.attend(queries, span, 5, mask_of(LENGTHS, span.width), SPEC)
    assert torch.allclose(found, attended(queries, keys, values, LENGTHS), atol=1e-6)


def test_the_next_step_adds_one_token_to_each(
    filled: tuple[GatheredSequences, GatheredPlan, Span, torch.Tensor, torch.Tensor],
) -> None:
    gathered, plan, span, keys, values = filled
    lengths = [length + 1 for length in LENGTHS]
    new_keys, new_values, queries = (
        torch.randn(2, n, 8, generator=torch.Generator().manual_seed(n)) for n in (2, 2, 4)
    )
    gathered.add(new_keys, new_values, plan.advance(state(lengths)))
    for seq, length in enumerate(lengths):
        keys[seq, length - 1], values[seq, length - 1] = new_keys[seq], new_values[seq]
    found = gathered.attend(queries, span, 6, mask_of(lengths, span.width), SPEC)
    assert torch.allclose(found, attended(queries, keys, values, lengths), atol=1e-6)


def test_memory_in_another_state_is_not_taken_for_this_ones(
    filled: tuple[GatheredSequences, GatheredPlan, Span, torch.Tensor, torch.Tensor],
) -> None:
    gathered, plan, *_ = filled
    later = plan.advance(state([6, 4]))
    gathered.state = state(LENGTHS)
    with pytest.raises(AssertionError):
        gathered.begin(later, SPEC)
