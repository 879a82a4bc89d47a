"""How many drafts each row of a step gets: as many as are worth their time, and none when none is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from engine.cpu.multi_step.draft_budget import plan


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
    plain_s = cost.plain_s(num_rows)
    if plain_s <= 0.0:
        return DraftPlan([0] * len(chances), 1.0)
    num_guesses = [len(of_row) for of_row in chances]
    table = np.zeros((len(chances), max(num_guesses)))
    for index, of_row in enumerate(chances):
        table[index, : len(of_row)] = of_row
    counts = np.empty(len(chances), dtype=np.int64)
    each_s = max(cost.per_draft_s(num_rows), 1e-9)
    fixed_s = cost.drafting_s(num_rows)
    gain = plan(table, np.array(num_guesses), num_rows, plain_s, fixed_s, each_s, min_gain, counts)
    return DraftPlan(counts.tolist(), gain)
