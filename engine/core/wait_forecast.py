"""How long a request that arrives now would wait for its first chunk, lane by lane. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from engine.core.lanes import LANES, WEIGHTS
from engine.messages import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What one lane has in the core."""

    num_running: int
    num_waiting: int
    num_tokens: int
    """Prompt tokens still to be computed, waiting or running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast the core works the backlogs off."""

    num_step_tokens: int
    """Prompt tokens a step can hold beside the rows that decode."""
    step_s: float
    """Duration of such a step."""
    num_free_rows: int
    ends_per_s: float
    """Sequences that end, by the forecast of their lengths."""


def forecast_wait_s(lane: Lane, backlogs: Mapping[Lane, Backlog], pace: Pace) -> float:
    """Seconds until a short request of this lane gets its first chunk.

    1. nothing runs or waits: none;
    2. rows are free: the steps that the prompt tokens ahead of it fill, or the one that runs;
    3. rows are short: besides, as many ends as stand between it and a row.
    Ahead of it is its own lane's backlog, and of the others' as much as their weights let through meanwhile.
    """
    if not any(backlog.num_running or backlog.num_waiting for backlog in backlogs.values()):
        return 0.0
    num_tokens = _ahead(lane, {other: float(backlog.num_tokens) for other, backlog in backlogs.items()})
    wait_s = max(1, math.ceil(num_tokens / max(1, pace.num_step_tokens))) * pace.step_s
    num_waiting = _ahead(lane, {other: float(backlog.num_waiting) for other, backlog in backlogs.items()}, own=1.0)
    num_ends = num_waiting - pace.num_free_rows
    if num_ends > 0 and pace.ends_per_s > 0:
        wait_s += num_ends / pace.ends_per_s
    return wait_s


def _ahead(lane: Lane, amounts: Mapping[Lane, float], own: float = 0.0) -> float:
    """What is served before the lane's newest is, when lanes are served by weight."""
    mine = amounts.get(lane, 0.0) + own
    return mine + sum(
        min(amounts.get(other, 0.0), mine * WEIGHTS[other] / WEIGHTS[lane]) for other in LANES if other != lane
    )
