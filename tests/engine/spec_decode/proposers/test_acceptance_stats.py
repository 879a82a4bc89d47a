"""How often each kind of draft token was accepted."""

from __future__ import annotations

import pytest

from engine.cpu.multi_step.argmax import CONFIDENCE_CLASSES
from engine.models.prediction_heads import MAX_HEADS
from engine.spec_decode.proposers.acceptance_stats import (
    MODEL,
    NUM_KINDS,
    AcceptanceStats,
    by_both,
    by_memory,
    by_text,
    first_by_heads,
    prior,
)


def test_kinds_do_not_overlap() -> None:
    kinds = [MODEL]
    for is_drawn in (False, True):
        first = first_by_heads(is_drawn=is_drawn)
        kinds += range(first, first + CONFIDENCE_CLASSES * MAX_HEADS)
    kinds += [by_text(size) for size in (1, 2, 3, 4, 6, 9, 16)]
    kinds += [by_memory(size, streak) for size in (1, 2, 3, 5) for streak in range(5)]
    kinds += [by_both(size, streak) for size in (1, 2, 3, 4, 6, 9, 16) for streak in range(5)]
    assert len(set(kinds)) == len(kinds)
    assert max(kinds) < NUM_KINDS == len(AcceptanceStats().acceptance_rates)


def test_sure_heads_are_believed_more_and_lookups_show_first_what_they_are_worth() -> None:
    first = first_by_heads(is_drawn=False)
    acceptance_rates = [prior(first + confidence) for confidence in range(CONFIDENCE_CLASSES)]
    assert acceptance_rates == sorted(acceptance_rates)
    assert acceptance_rates[-1] > 0.98
    assert prior(by_text(3)) < prior(by_both(3, 1)) < prior(MODEL)


def test_one_trial_does_not_decide_and_many_do() -> None:
    stats = AcceptanceStats()
    stats.observe(MODEL, was_right=False)
    assert 0.6 < stats.acceptance_rate(MODEL) < 0.8
    for _ in range(300):
        stats.observe(MODEL, was_right=False)
    assert stats.acceptance_rate(MODEL) == pytest.approx(0.0, abs=0.01)
    assert stats.acceptance_rate(by_text(1)) == 0.2
