"""How many drafts each row of a step gets: as many as are worth their time, and none when none is."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class StepCost(Protocol):
    """Seconds of a decode step, from measurement."""

    def plain_s(self, num_rows: int) -> float:
        """A step of `num_rows` tokens without drafts; 0 when nothing is known."""
        ...

    def drafting_s(self, num_rows: int) -> float:
        """What verifying anything at all adds, whatever the number of drafts."""
        ...

    def per_draft_s(self, num_rows: int) -> float:
        """What one more draft adds, its making included."""
        ...


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """Drafts for each row, and what they are expected to gain."""

    counts: list[int]
    gain: float
    """Expected tokens per second as a multiple of those without drafts; 1 when there are none."""


def plan_drafts(
    chances: Sequence[Sequence[float]], num_rows: int, cost: StepCost, *, min_gain: float = 1.05
) -> DraftPlan:
    """Drafts for each row so that expected tokens per second are highest; none below `min_gain`.

    `chances`: for each row that could verify drafts, the probability of each that it is right, given those before it.
    A step of R rows yields R tokens in T seconds without drafts. A draft adds the probability that it and those
    before it are right, for a fixed cost, so a row's gains fall and the greedy choice over all rows is optimal;
    adding stops where the next draft would earn less per second than the step as a whole.
    """
    counts = [0] * len(chances)
    plain_s = cost.plain_s(num_rows)
    if plain_s <= 0.0:
        return DraftPlan(counts, 1.0)
    tokens, seconds = float(num_rows), plain_s + cost.drafting_s(num_rows)
    per_draft_s = max(cost.per_draft_s(num_rows), 1e-9)
    heap = [(-of_row[0], index) for index, of_row in enumerate(chances) if of_row]
    heapq.heapify(heap)
    while heap:
        negative_gain, index = heapq.heappop(heap)
        if (tokens - negative_gain) / (seconds + per_draft_s) <= tokens / seconds:
            break
        tokens -= negative_gain
        seconds += per_draft_s
        counts[index] += 1
        if counts[index] < len(chances[index]):
            heapq.heappush(heap, (negative_gain * chances[index][counts[index]], index))
    gain = tokens / num_rows * plain_s / seconds
    if gain < min_gain or not any(counts):
        return DraftPlan([0] * len(chances), 1.0)
    return DraftPlan(counts, gain)
