"""Thresholds of a cascade from labels: proven ones keep the stated quality, whatever the truth is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from routing_policies.quality.thresholds import (
    ERROR_PROBABILITY,
    MIN_LABELS,
    NEVER,
    AnswerLabel,
    CascadeThreshold,
    CascadeThresholds,
    threshold_of,
)

PAIR = ("small", "large")
Truth = Callable[[float], float]
"""P(an answer is good) by its confidence."""
TRUTHS: dict[str, Truth] = {
    "calibrated": lambda confidence: confidence,
    "too sure of itself": lambda confidence: confidence**4,
    "too modest": lambda confidence: confidence**0.3,
    "knows one half": lambda confidence: 0.97 if confidence > 0.5 else 0.2,
    "confidence tells nothing": lambda confidence: 0.75,
    "always wrong": lambda confidence: 0.02,
    "always right": lambda confidence: 0.99,
}


def drawn(truth: Truth, num: int, seed: int) -> list[AnswerLabel]:
    rng = Random(seed)
    confidences = [rng.random() for _ in range(num)]
    return [AnswerLabel(confidence, rng.random() < truth(confidence)) for confidence in confidences]


def share_above(truth: Truth, threshold: float) -> float:
    """The true share of good answers at or above a threshold, of uniform confidences."""
    grid = [threshold + (1.0 - threshold) * (place + 0.5) / 500 for place in range(500)]
    return sum(map(truth, grid)) / len(grid)


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("min_quality", [0.6, 0.8, 0.9])
@pytest.mark.parametrize("num", [100, 400, 1500])
def test_a_proven_threshold_keeps_the_stated_quality(name: str, min_quality: float, num: int) -> None:
    truth, num_tries = TRUTHS[name], 60
    found = [threshold_of(drawn(truth, num, seed), min_quality) for seed in range(num_tries)]
    broken = [one for one in found if one.state == "proven" and share_above(truth, one.confidence) < min_quality]
    assert len(broken) <= ERROR_PROBABILITY * num_tries


def test_few_labels_leave_the_default_in_force() -> None:
    labels = drawn(TRUTHS["always right"], MIN_LABELS - 1, 1)
    found = threshold_of(labels, 0.8)
    assert (found.state, found.confidence, found.num_labels) == ("default", 0.8, MIN_LABELS - 1)


@pytest.mark.parametrize(
    ("name", "min_quality", "lowest", "highest"),
    [
        ("too modest", 0.8, 0.05, 0.35),  # the true share above 0.14 is 0.8
        ("knows one half", 0.8, 0.3, 0.6),
        ("always right", 0.8, 0.0, 0.05),
        ("too sure of itself", 0.8, 0.85, 0.97),
    ],
)
def test_with_many_labels_the_threshold_is_near_the_lowest_possible(
    name: str, min_quality: float, lowest: float, highest: float
) -> None:
    found = threshold_of(drawn(TRUTHS[name], 2000, 7), min_quality)
    assert lowest <= found.confidence <= highest, found


def test_where_the_default_is_refuted_answers_go_on_only_above_what_was_good_enough() -> None:
    found = threshold_of(drawn(TRUTHS["always wrong"], 300, 3), 0.8)
    assert (found.state, found.confidence) == ("refuted", NEVER)
    found = threshold_of(drawn(lambda confidence: 0.92 if confidence > 0.93 else 0.3, 600, 3), 0.8)
    assert found.state in ("refuted", "proven")
    assert found.confidence > 0.85


def test_only_the_labels_pair_changes_and_small_changes_do_not_count() -> None:
    thresholds = CascadeThresholds()
    thresholds.want(PAIR, 0.8)
    thresholds.want(("other", "large"), 0.8)
    assert thresholds.confidence(PAIR, 0.8) == 0.8
    assert thresholds.confidence(PAIR, 0.5) == 0.5, "no route wants it"

    labels = drawn(TRUTHS["too modest"], 1000, 4)

    def update(labels: list[AnswerLabel], now: float) -> list[tuple[float, CascadeThreshold]]:
        found = {quality: threshold_of(labels, quality) for quality in thresholds.qualities(PAIR)}
        return thresholds.update(PAIR, found, now)

    ((min_quality, first),) = update(labels, 100.0)
    assert (min_quality, first.state, first.since) == (0.8, "proven", 100.0)
    assert thresholds.confidence(PAIR, 0.8) == first.confidence < 0.5
    assert thresholds.confidence(("other", "large"), 0.8) == 0.8

    assert update(labels[:-1], 200.0) == []
    assert thresholds.confidence(PAIR, 0.8) == first.confidence
    assert {found.since for pair, _, found in thresholds if pair == PAIR} == {100.0}

    ((_, back),) = update([], 300.0)
    assert (back.state, back.confidence, back.since) == ("default", 0.8, 300.0)
