"""How many drafts each row of a step gets: as many as are worth their time, and none when none is."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Candidate:
    """A decoding row that could verify drafts."""

    acceptance: float
    """Probability that a draft is accepted, given that those before it were."""
    max_drafts: int


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


def plan_drafts(candidates: Sequence[Candidate], num_rows: int, cost: StepCost, *, min_gain: float = 1.05) -> list[int]:
    """Drafts for each candidate so that expected tokens per second are highest; all 0 below `min_gain` over none.

    A step of R rows yields R tokens in T seconds without drafts. The i-th draft of a row adds acceptance**i expected
    tokens for a fixed cost, so gains fall and the greedy choice over all rows is optimal; adding stops where the next
    draft would earn less per second than the step as a whole.
    """
    counts = [0] * len(candidates)
    plain_s = cost.plain_s(num_rows)
    if plain_s <= 0.0:
        return counts
    plain_rate = num_rows / plain_s
    tokens, seconds = float(num_rows), plain_s + cost.drafting_s(num_rows)
    per_draft_s = max(cost.per_draft_s(num_rows), 1e-9)
    heap = [(-row.acceptance, index) for index, row in enumerate(candidates) if row.max_drafts > 0]
    heapq.heapify(heap)
    while heap:
        negative_gain, index = heapq.heappop(heap)
        if (tokens - negative_gain) / (seconds + per_draft_s) <= tokens / seconds:
            break
        tokens -= negative_gain
        seconds += per_draft_s
        counts[index] += 1
        if counts[index] < candidates[index].max_drafts:
            heapq.heappush(heap, (negative_gain * candidates[index].acceptance, index))
    return counts if tokens / seconds >= min_gain * plain_rate else [0] * len(candidates)


def expected_gain(candidates: Sequence[Candidate], counts: Sequence[int], num_rows: int, cost: StepCost) -> float:
    """Expected tokens per second with so many drafts, as a multiple of those without; 1 without drafts."""
    num_drafts = sum(counts)
    plain_s = cost.plain_s(num_rows)
    if not num_drafts or plain_s <= 0.0:
        return 1.0
    tokens = float(num_rows)
    for row, count in zip(candidates, counts, strict=True):
        tokens += sum(row.acceptance**position for position in range(1, count + 1))
    seconds = plain_s + cost.drafting_s(num_rows) + num_drafts * cost.per_draft_s(num_rows)
    return tokens / num_rows * plain_s / seconds
