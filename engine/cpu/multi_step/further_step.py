"""Further decode steps in one call: accept the output of a step, then lay out the next one with its draft tokens.

The interpreter does not run between two of these steps. Choosing draft tokens in Python takes as long as verifying them
takes a small model.
"""

from __future__ import annotations

import numpy as np

from engine.cpu.gemm.arithmetic import copy, embed, integers, view
from engine.cpu.jit.compiler import compiled_exactly
from engine.cpu.jit.intrinsics import now_ns
from engine.cpu.jit.kernel import kernel
from engine.cpu.jit.layout import GROUP, MODEL, MULTI_STEP, ROW_LIMITS, STEP, STEP_COSTS, STEP_LOG
from engine.cpu.multi_step.draft_budget import record_row_acceptance
from engine.cpu.multi_step.draft_records import DRAFT_END, DRAFT_ROW, TRIALS
from engine.cpu.multi_step.medusa import is_stop
from engine.cpu.multi_step.ngram import BY_PREDICTION, choose

MOST_TOGETHER = 8
"""Maximum number of adjacent tokens of a row that attend together."""
EVEN_SHARES = 8
"""Threads take even shares of the rows if no row has more than 1/EVEN_SHARES of all positions."""


@kernel
def follow_step(model, step, multi_step):
    """Accept the output of a step and lay out the next one; `goes_on` receives whether there is one."""
    further = view(multi_step, 1, MULTI_STEP)[0]
    further.goes_on = next_step(view(model, 1, MODEL)[0], view(step, 1, STEP)[0], further)


@compiled_exactly
def next_step(model, step, multi_step):
    """Accept the output of a step and lay out the next one; return whether there is one."""
    if multi_step.num_left == 0:
        return False
    multi_step.num_left -= 1
    goes_on = _take_over(step, multi_step)
    now = now_ns()
    log = view(multi_step.log, multi_step.num_done, STEP_LOG)[multi_step.num_done - 1]
    log.nanoseconds, log.num_drafts = now - multi_step.since_ns, step.num_tokens - multi_step.num_rows
    multi_step.since_ns = now
    if multi_step.num_done == 1:
        multi_step.deadline_ns = now + multi_step.longest_ns
    if not goes_on or multi_step.num_left == 0 or now >= multi_step.deadline_ns:
        return False
    return _choose_drafts(model, step, multi_step) and _lay_out(model, step, multi_step)


@compiled_exactly
def _take_over(step, multi_step):
    """Append the chosen tokens to the texts and update the acceptance rates; return whether every row continues."""
    num_rows = multi_step.num_rows
    rows = view(multi_step.rows, num_rows, DRAFT_ROW)
    texts = view(multi_step.texts, (num_rows, multi_step.capacity), np.int64)
    if multi_step.num_done == 0:
        for index in range(num_rows):
            row = rows[index]
            texts[index, : row.length] = integers(row.text, row.length)
            row.text = multi_step.texts + 8 * index * multi_step.capacity
    multi_step.num_done += 1
    taken, chosen = integers(step.taken, num_rows), integers(step.chosen, num_rows)
    for index in range(num_rows):
        if taken[index] < 0:
            return False
    starts, limits = integers(step.row_starts, num_rows + 1), view(multi_step.limits, num_rows, ROW_LIMITS)
    token_ids, sampled = integers(step.token_ids, step.num_tokens), integers(step.sampled, step.num_sampled)
    tokens = view(multi_step.found_tokens, (num_rows, multi_step.most_drafts), np.int64)
    kinds = view(multi_step.found_kinds, (num_rows, multi_step.most_drafts), np.int64)
    ends, acceptance_rates = (
        view(multi_step.ends, num_rows, DRAFT_END),
        view(multi_step.acceptance_rates, multi_step.num_kinds, np.float64),
    )
    trials = view(multi_step.trials, multi_step.num_kinds, TRIALS)
    first_predicted = integers(multi_step.kinds, multi_step.num_listed)[BY_PREDICTION]
    goes_on = True
    for index in range(num_rows):
        row, text = rows[index], texts[index]
        end = row.length
        for place in range(taken[index]):
            text[end + place] = token_ids[sampled[starts[index] + 1 + place]]
        text[end + taken[index]] = chosen[index]
        if row.num_predicted:
            num_verified = min(starts[index + 1] - starts[index] - 1, ends[index].num_drafts)
            for place in range(num_verified):
                if kinds[index, place] >= first_predicted:
                    limits[index].num_predicted += 1
                    limits[index].num_predicted_right += place < taken[index]
        row.length += taken[index] + 1
        output = text[end : row.length]
        record_row_acceptance(
            tokens[index], kinds[index], ends[index].num_drafts, output, multi_step.decay, trials, acceptance_rates
        )
        if is_stop(step, chosen[index]) or row.length >= limits[index].max_length:
            goes_on = False
    return goes_on


@compiled_exactly
def _choose_drafts(model, step, multi_step):
    """Choose the draft tokens of each row and how many of them to verify; return whether the step has room for them.

    A step without draft tokens runs no heads, and draft tokens may follow its output.
    """
    num_rows, num_heads = multi_step.num_rows, model.ahead.num_heads
    predicted = view(step.predicted, (2, num_rows, num_heads), np.int64)
    if predicted[0, 0, 0] < 0:
        return False
    if multi_step.is_speculative == 0:
        integers(multi_step.counts, num_rows)[:] = 0
        return num_rows <= multi_step.most_tokens
    rows, limits = view(multi_step.rows, num_rows, DRAFT_ROW), view(multi_step.limits, num_rows, ROW_LIMITS)
    head_kinds = np.empty((num_rows, num_heads), np.int64)
    for index in range(num_rows):
        row = rows[index]
        # The token behind the drafts is chosen anyway.
        row.max_drafts = max(0, min(multi_step.most_drafts, limits[index].drafts_until - row.length - 1))
        head_kinds[index] = predicted[1, index] + multi_step.head_kind
    choose(
        rows,
        integers(multi_step.stops, multi_step.num_stops),
        integers(multi_step.memory_keys, multi_step.memory_size),
        integers(multi_step.memory_values, multi_step.memory_size),
        view(multi_step.acceptance_rates, multi_step.num_kinds, np.float64),
        integers(multi_step.kinds, multi_step.num_listed),
        predicted[0],
        head_kinds,
        view(multi_step.found_tokens, (num_rows, multi_step.most_drafts), np.int64),
        view(multi_step.found_kinds, (num_rows, multi_step.most_drafts), np.int64),
        view(multi_step.ends, num_rows, DRAFT_END),
        view(multi_step.costs, 1, STEP_COSTS)[0],
        integers(multi_step.counts, num_rows),
    )
    counts = integers(multi_step.counts, num_rows)
    num_drafts = np.sum(counts)
    return num_rows + num_drafts <= multi_step.most_tokens


@compiled_exactly
def _lay_out(model, step, multi_step):
    """Write the next step into the record: the last token of each row and its draft tokens."""
    num_rows, block_size, size = multi_step.num_rows, model.block_size, model.hidden_size
    rows, counts = view(multi_step.rows, num_rows, DRAFT_ROW), integers(multi_step.counts, num_rows)
    drafts = view(multi_step.found_tokens, (num_rows, multi_step.most_drafts), np.int64)
    limits = view(multi_step.limits, num_rows, ROW_LIMITS)
    num_tokens = num_rows + np.sum(counts)
    token_ids, positions = integers(multi_step.token_ids, num_tokens), integers(multi_step.positions, num_tokens)
    slots, window_slots = integers(multi_step.slots, num_tokens), integers(multi_step.window_slots, num_tokens)
    groups = view(multi_step.groups, num_tokens, GROUP)
    starts = integers(step.row_starts, num_rows + 1)
    place, num_groups, longest, all_positions = 0, 0, 0, 0
    for row in range(num_rows):
        starts[row] = place
        limits[row].num_verified += counts[row]
        count, first, table_row = 1 + counts[row], rows[row].length - 1, limits[row].table_row
        num_parts = (count + MOST_TOGETHER - 1) // MOST_TOGETHER
        together = (count + num_parts - 1) // num_parts
        table = integers(step.tables + 8 * table_row * step.table_width, step.table_width)
        window_table = integers(step.window_tables + 8 * table_row * step.table_width, step.table_width)
        for index in range(count):
            token = drafts[row, index - 1] if index else integers(rows[row].text, rows[row].length)[first]
            position = first + index
            token_ids[place], positions[place] = token, position
            slots[place] = table[position // block_size] * block_size + position % block_size
            window_slots[place] = window_table[position // block_size] * block_size + position % block_size
            target = step.residual + 4 * place * size
            embed(step.embedding, step.embedding_bytes, token, model.embedding_scale, target, size)
            turned = 4 * model.head_dim
            copy(multi_step.turns + turned * position, multi_step.rotations + turned * place, model.head_dim)
            copy(
                multi_step.local_turns + turned * position, multi_step.local_rotations + turned * place, model.head_dim
            )
            if index % together == 0:
                group = groups[num_groups]
                group.first_token, group.num_tokens = place, min(together, count - index)
                group.row, group.place = table_row, place
                num_groups += 1
            place += 1
        longest = max(longest, first + count)
        all_positions += first + count
    starts[num_rows] = place
    step.num_tokens, step.num_sampled = num_tokens, num_tokens
    step.positions, step.slots, step.token_ids = multi_step.positions, multi_step.slots, multi_step.token_ids
    step.window_slots = multi_step.window_slots
    step.groups, step.num_groups = multi_step.groups, num_groups
    step.heads_together = model.num_kv_heads if longest * EVEN_SHARES <= all_positions else 1
    step.rotations, step.sampled = multi_step.rotations, multi_step.sampled
    step.local_rotations = multi_step.local_rotations
    step.hidden, step.logits = multi_step.hidden, multi_step.logits
    return True
