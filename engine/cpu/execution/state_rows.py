"""Records of the recurrent states that a step's sequences read and write, for compiled steps and their parts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.attention.step_states import StepStates
from engine.cpu.jit.layout import STATE_ROW

StateRows = npt.NDArray[Any]
"""STATE_ROW records of the sequences that have tokens."""
_NO_STATE = -1
_NO_CUTS = ((0, 0), (0, 0))


def rows_of(states: StepStates, query_starts: list[int]) -> StateRows:
    """Return the records of a step."""
    found = []
    for use, (start, end) in zip(states.uses, pairwise(query_starts), strict=True):
        early, late = (*use.saved, *_NO_CUTS)[:2]
        read = _NO_STATE if use.read is None else use.read
        found.append((start, end - start, read, use.write, *early, *late))
    return np.array(found, dtype=STATE_ROW)


def rows_between(rows: StateRows, first: int, end: int) -> StateRows:
    """Return the records of tokens [first, end) alone; a sequence that began before goes on from what it wrote."""
    starts, ends = rows["first_token"], rows["first_token"] + rows["num_tokens"]
    is_there = (starts < end) & (ends > first)
    found: StateRows = rows[is_there]  # a copy
    num_done = np.maximum(first - found["first_token"], 0)
    found["read"] = np.where(num_done > 0, found["write"], found["read"])
    found["first_token"] += num_done - first
    found["num_tokens"] = np.minimum(ends[is_there], end) - first - found["first_token"]
    found["early_end"] -= num_done
    found["late_end"] -= num_done
    return found


def picked(rows: StateRows, indices: list[int]) -> StateRows:
    """Return the records of some sequences whose tokens stand side by side."""
    found: StateRows = rows[indices]
    found["first_token"] = np.cumsum(found["num_tokens"]) - found["num_tokens"]
    return found
