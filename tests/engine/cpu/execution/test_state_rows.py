"""Records of recurrent states, of whole steps and of their parts."""

from __future__ import annotations

import torch

from engine.attention.step_states import StateUse, StepStates
from engine.cpu.execution.state_rows import StateRows, picked, rows_between, rows_of

STARTS = [0, 1, 21, 24]
USES = [StateUse(3, 4), StateUse(None, 5, ((8, 6), (16, 7))), StateUse(0, 1, ((2, 2),))]
"""A sequence that decodes, a prompt that saves two states, and the end of a prompt that saves one."""


def step() -> StateRows:
    return rows_of(StepStates.of(USES, STARTS, 4, torch.device("cpu")), STARTS)


def spans(rows: StateRows) -> list[tuple[int, ...]]:
    return [tuple(row)[:4] for row in rows.tolist()]


def ends(rows: StateRows) -> list[tuple[int, ...]]:
    return [tuple(row)[4:] for row in rows.tolist()]


def test_each_sequence_has_its_tokens_and_slots() -> None:
    rows = step()

    assert spans(rows) == [(0, 1, 3, 4), (1, 20, -1, 5), (21, 3, 0, 1)]
    assert ends(rows) == [(0, 0, 0, 0), (8, 6, 16, 7), (2, 2, 0, 0)]


def test_a_part_goes_on_from_the_state_that_the_part_before_it_wrote() -> None:
    parts = [rows_between(step(), first, first + 8) for first in (0, 8, 16)]

    assert spans(parts[0]) == [(0, 1, 3, 4), (1, 7, -1, 5)]
    assert spans(parts[1]) == [(0, 8, 5, 5)]
    assert spans(parts[2]) == [(0, 5, 5, 5), (5, 3, 0, 1)]
    # The state behind 8 tokens is saved by the second part, and that behind 16 by the third.
    saved = [(row[4], row[6]) for part in parts for row in part.tolist() if row[3] == 5]
    assert saved == [(8, 16), (1, 9), (-7, 1)]


def test_sequences_that_are_picked_stand_side_by_side() -> None:
    rows = step()

    assert spans(picked(rows, [0, 2])) == [(0, 1, 3, 4), (1, 3, 0, 1)]
    assert spans(rows) == [(0, 1, 3, 4), (1, 20, -1, 5), (21, 3, 0, 1)]
