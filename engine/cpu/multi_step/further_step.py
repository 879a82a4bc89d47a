"""Further decode steps in one call: accept the output of a step, then lay out the next one with its draft tokens.

The interpreter does not run between two of these steps. Choosing draft tokens in Python takes as long as verifying them
takes a small model.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from engine.cpu.attention.attention import GROUP_FIELDS
from engine.cpu.gemm.arithmetic import copy, integers
from engine.cpu.jit.compiler import compiled_exactly
from engine.cpu.jit.intrinsics import now_ns, pointer_to_doubles, pointer_to_integers
from engine.cpu.multi_step.draft_budget import record_row_acceptance
from engine.cpu.multi_step.medusa import is_stop
from engine.cpu.multi_step.ngram import choose

MOST_TOGETHER = 8
"""Maximum number of adjacent tokens of a row that attend together."""
EVEN_SHARES = 8
"""Threads take even shares of the rows if no row has more than 1/EVEN_SHARES of all positions."""


@compiled_exactly
def _table(address, num_rows, size):
    """Return a view of int64 [rows, size] at an address."""
    return carray(pointer_to_integers(address), (num_rows, size))


@compiled_exactly
def _numbers(address, num_rows, size):
    """Return a view of float64 [rows, size] at an address."""
    return carray(pointer_to_doubles(address), (num_rows, size))


@compiled_exactly
def another_round(model, step, rounds):
    """Accept the output of a step and lay out the next one; return whether there is one."""
    if rounds.num_left == 0:
        return False
    rounds.num_left -= 1
    goes_on = _take_over(step, rounds)
    now = now_ns()
    log = _table(rounds.log, rounds.num_done, 2)
    log[rounds.num_done - 1, 0] = now - rounds.since_ns
    log[rounds.num_done - 1, 1] = step.num_tokens - rounds.num_rows
    rounds.since_ns = now
    if rounds.num_done == 1:
        rounds.deadline_ns = now + rounds.longest_ns
    if not goes_on or rounds.num_left == 0 or now >= rounds.deadline_ns:
        return False
    return _choose_drafts(model, step, rounds) and _lay_out(model, step, rounds)


@compiled_exactly
def _take_over(step, rounds):
    """Append the chosen tokens to the texts and update the acceptance rates; return whether every row continues."""
    num_rows = rounds.num_rows
    rows, texts = _table(rounds.rows, num_rows, 6), _table(rounds.texts, num_rows, rounds.capacity)
    if rounds.num_done == 0:
        for row in range(num_rows):
            text = integers(rows[row, 0], rows[row, 1])
            texts[row, : len(text)] = text
            rows[row, 0] = rounds.texts + 8 * row * rounds.capacity
    rounds.num_done += 1
    taken, chosen = integers(step.taken, num_rows), integers(step.chosen, num_rows)
    for row in range(num_rows):
        if taken[row] < 0:
            return False
    starts, limits = integers(step.row_starts, num_rows), _table(rounds.limits, num_rows, 4)
    token_ids, sampled = integers(step.token_ids, step.num_tokens), integers(step.sampled, step.num_sampled)
    tokens = _table(rounds.found_tokens, num_rows, rounds.most_drafts)
    kinds = _table(rounds.found_kinds, num_rows, rounds.most_drafts)
    ends, acceptance_rates = _table(rounds.ends, num_rows, 2), _numbers(rounds.acceptance_rates, 1, rounds.num_kinds)[0]
    trials = _numbers(rounds.trials, 2, rounds.num_kinds)
    goes_on = True
    for row in range(num_rows):
        text, end = texts[row], rows[row, 1]
        for place in range(taken[row]):
            text[end + place] = token_ids[sampled[starts[row] + 1 + place]]
        text[end + taken[row]] = chosen[row]
        rows[row, 1] += taken[row] + 1
        said = text[end : rows[row, 1]]
        record_row_acceptance(tokens[row], kinds[row], ends[row, 0], said, rounds.decay, trials, acceptance_rates)
        if is_stop(step, chosen[row]) or rows[row, 1] >= limits[row, 1]:
            goes_on = False
    return goes_on


@compiled_exactly
def _choose_drafts(model, step, rounds):
    """Choose the draft tokens of each row and how many of them to verify; return whether the step has room for them.

    A step without draft tokens runs no heads, and draft tokens may follow its output.
    """
    num_rows, num_heads = rounds.num_rows, model.ahead.num_heads
    said = carray(pointer_to_integers(step.said), (2, num_rows, num_heads))
    if said[0, 0, 0] < 0:
        return False
    if rounds.is_speculative == 0:
        integers(rounds.counts, num_rows)[:] = 0
        return num_rows <= rounds.most_tokens
    rows, numbers = _table(rounds.rows, num_rows, 6), _numbers(rounds.numbers, num_rows, 3)
    limits, head_kinds = _table(rounds.limits, num_rows, 4), np.empty((num_rows, num_heads), np.int64)
    for row in range(num_rows):
        # The token behind the drafts is chosen anyway.
        rows[row, 5] = max(0, min(rounds.most_drafts, limits[row, 2] - rows[row, 1] - 1))
        head_kinds[row] = said[1, row] + rounds.head_kind
    choose(
        rows,
        numbers,
        integers(rounds.stops, rounds.num_stops),
        integers(rounds.memory_keys, rounds.memory_size),
        integers(rounds.memory_values, rounds.memory_size),
        _numbers(rounds.acceptance_rates, 1, rounds.num_kinds)[0],
        integers(rounds.kinds, rounds.num_listed),
        said[0],
        head_kinds,
        _table(rounds.found_tokens, num_rows, rounds.most_drafts),
        _table(rounds.found_kinds, num_rows, rounds.most_drafts),
        _table(rounds.ends, num_rows, 2),
        _numbers(rounds.costs, 1, 4)[0],
        integers(rounds.counts, num_rows),
    )
    counts = integers(rounds.counts, num_rows)
    num_drafts = np.sum(counts)
    return num_rows + num_drafts <= rounds.most_tokens


@compiled_exactly
def _lay_out(model, step, rounds):
    """Write the next step into the record: the last token of each row and its draft tokens."""
    num_rows, block_size, size = rounds.num_rows, model.block_size, model.hidden_size
    rows, counts = _table(rounds.rows, num_rows, 6), integers(rounds.counts, num_rows)
    drafts = _table(rounds.found_tokens, num_rows, rounds.most_drafts)
    limits = _table(rounds.limits, num_rows, 4)
    num_tokens = num_rows + np.sum(counts)
    token_ids, positions = integers(rounds.token_ids, num_tokens), integers(rounds.positions, num_tokens)
    slots, groups = integers(rounds.slots, num_tokens), _table(rounds.groups, num_tokens, GROUP_FIELDS)
    starts = integers(step.row_starts, num_rows + 1)
    place, num_groups, longest, all_positions = 0, 0, 0, 0
    for row in range(num_rows):
        starts[row] = place
        limits[row, 3] += counts[row]
        count, first = 1 + counts[row], rows[row, 1] - 1
        num_parts = (count + MOST_TOGETHER - 1) // MOST_TOGETHER
        together = (count + num_parts - 1) // num_parts
        table = integers(step.tables + 8 * limits[row, 0] * step.table_width, step.table_width)
        for index in range(count):
            token = drafts[row, index - 1] if index else integers(rows[row, 0], rows[row, 1])[first]
            position = first + index
            token_ids[place], positions[place] = token, position
            slots[place] = table[position // block_size] * block_size + position % block_size
            copy(step.embedding + 4 * token * size, step.residual + 4 * place * size, size)
            turned = 4 * model.head_dim
            copy(rounds.turns + turned * position, rounds.rotations + turned * place, model.head_dim)
            if index % together == 0:
                groups[num_groups, 0], groups[num_groups, 3], groups[num_groups, 2] = place, place, limits[row, 0]
                groups[num_groups, 1] = min(together, count - index)
                num_groups += 1
            place += 1
        longest = max(longest, first + count)
        all_positions += first + count
    starts[num_rows] = place
    step.num_tokens, step.num_sampled = num_tokens, num_tokens
    step.positions, step.slots, step.token_ids = rounds.positions, rounds.slots, rounds.token_ids
    step.groups, step.num_groups = rounds.groups, num_groups
    step.heads_together = model.num_kv_heads if longest * EVEN_SHARES <= all_positions else 1
    step.rotations, step.sampled = rounds.rotations, rounds.sampled
    step.hidden, step.logits = rounds.hidden, rounds.logits
    return True
