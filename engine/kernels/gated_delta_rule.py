"""Kernel of the gated delta rule for any mix of sequences.

One program walks one sequence's tokens with some columns of one head's state, which are independent of the others. The
state stays in registers from the first token to the last.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

_COLUMNS = 16
"""Columns of a state that one program, a single warp, holds."""
_NUM_WARPS = 1


@triton.jit
def walk_sequences(
    out_ptr,
    states_ptr,
    reads_ptr,
    starts_ptr,
    cut_ends_ptr,
    cut_slots_ptr,
    queries_ptr,
    keys_ptr,
    values_ptr,
    decays_ptr,
    rates_ptr,
    NUM_HEADS: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    KEY_PADDED: tl.constexpr,
    COLUMNS: tl.constexpr,
    NUM_CUTS: tl.constexpr,
):
    """Advance one head's state of one sequence by its tokens of the step.

    S <- exp(decay) S;  S <- S + k (rate (v - S^T k))^T;  out = S^T q
    """
    row = tl.program_id(0)
    head = tl.program_id(1)
    keys = tl.arange(0, KEY_PADDED)
    columns = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    is_key = keys < KEY_DIM
    is_value = columns < VALUE_DIM
    is_inside = is_key[:, None] & is_value[None, :]
    places = head * KEY_DIM * VALUE_DIM + keys[:, None] * VALUE_DIM + columns[None, :]
    slot_size = NUM_HEADS * KEY_DIM * VALUE_DIM

    start = tl.load(starts_ptr + row)
    length = tl.load(starts_ptr + row + 1) - start
    read = tl.load(reads_ptr + row)
    state = tl.load(states_ptr + tl.maximum(read, 0) * slot_size + places, mask=is_inside, other=0.0)
    state = tl.where(read >= 0, state, 0.0)
    for token in range(length):
        of_head = (start + token) * NUM_HEADS + head
        key = tl.load(keys_ptr + of_head * KEY_DIM + keys, mask=is_key, other=0.0)
        query = tl.load(queries_ptr + of_head * KEY_DIM + keys, mask=is_key, other=0.0)
        value = tl.load(values_ptr + of_head * VALUE_DIM + columns, mask=is_value, other=0.0)
        state *= tl.exp(tl.load(decays_ptr + of_head))
        change = (value - tl.sum(state * key[:, None], axis=0)) * tl.load(rates_ptr + of_head)
        state += key[:, None] * change[None, :]
        tl.store(out_ptr + of_head * VALUE_DIM + columns, tl.sum(state * query[:, None], axis=0), mask=is_value)
        for cut in tl.static_range(NUM_CUTS):
            if tl.load(cut_ends_ptr + row * NUM_CUTS + cut) == token + 1:
                write = tl.load(cut_slots_ptr + row * NUM_CUTS + cut) * slot_size
                tl.store(states_ptr + write + places, state, mask=is_inside)


def advance_states(
    states: torch.Tensor,
    reads: torch.Tensor,
    starts: torch.Tensor,
    cut_ends: torch.Tensor,
    cut_slots: torch.Tensor,
    inputs: Sequence[torch.Tensor],
) -> torch.Tensor:
    """Advance the states of R sequences by T tokens in all.

    Args:
        states: float32 [slots, heads, key_dim, value_dim], changed in place.
        reads: int64 [R]: slot of each sequence's state; -1: the sequence begins.
        starts: int64 [R + 1]: first token of each sequence, and T.
        cut_ends: int64 [R, C]: number of a sequence's tokens before a state that is written; 0: none.
        cut_slots: int64 [R, C]: its slot.
        inputs: Queries and keys [T, heads, key_dim], values [T, heads, value_dim], logarithms of decays and rates
            [T, heads], float32.

    Returns:
        Outputs [T, heads, value_dim].
    """
    _, num_heads, key_dim, value_dim = states.shape
    num_rows, num_cuts = cut_ends.shape
    out = torch.empty(inputs[2].shape, dtype=torch.float32, device=states.device)
    walk_sequences[num_rows, num_heads, triton.cdiv(value_dim, _COLUMNS)](
        out,
        states,
        reads,
        starts,
        cut_ends,
        cut_slots,
        *(part.contiguous() for part in inputs),
        NUM_HEADS=num_heads,
        KEY_DIM=key_dim,
        VALUE_DIM=value_dim,
        KEY_PADDED=triton.next_power_of_2(key_dim),
        COLUMNS=_COLUMNS,
        NUM_CUTS=num_cuts,
        num_warps=_NUM_WARPS,
    )
    return out
