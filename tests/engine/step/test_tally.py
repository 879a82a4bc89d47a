"""Totals of the core, and the copies that leave it."""

from __future__ import annotations

from engine.protocol import Counters
from engine.step.tally import CoreTotals


def test_a_snapshot_is_a_copy_that_later_steps_do_not_change() -> None:
    totals = CoreTotals()
    totals.steps, totals.prompt_tokens = 3, 40
    snapshot = totals.snapshot()
    totals.steps += 1
    assert type(snapshot) is Counters
    assert (snapshot.steps, snapshot.prompt_tokens, snapshot.preemptions) == (3, 40, 0)
    assert totals.snapshot().steps == 4
