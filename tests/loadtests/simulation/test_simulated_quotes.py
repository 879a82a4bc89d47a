"""Quoted bounds of first tokens, in virtual time and under drift."""

from __future__ import annotations

import random

import pytest

from loadtests.engines.modelled_engine import EngineShape
from loadtests.overload.workload import Lengths, Offer, poisson_offers
from loadtests.simulation.simulated_quotes import (
    PARTS,
    Measured,
    Measurements,
    coverage_of,
    drifting,
    measure,
    window_coverages,
    with_fixed_quantile,
)

SECONDS = 200.0


@pytest.fixture(scope="module")
def measured() -> Measurements:
    offers = list(poisson_offers(16.0, SECONDS, random.Random(1), Lengths()))
    return measure(drifting(offers, SECONDS), EngineShape(), 2, 1)


def test_bounds_at_admission_cover_as_often_as_stated_while_the_engines_drift(measured: Measurements) -> None:
    found = measured.all_at_once()
    assert measured.failure is None
    assert len(found) > 1500
    assert 0.93 <= coverage_of(found) <= 0.97
    assert min(window_coverages(found)) >= 0.87


def test_a_quantile_that_never_changes_does_not(measured: Measurements) -> None:
    fixed = with_fixed_quantile(measured.all_at_once(), measured.at_once[PARTS[0]], 0.95)
    assert coverage_of(fixed) < 0.93
    assert min(window_coverages(fixed)) < min(window_coverages(measured.all_at_once()))


def test_quoted_bounds_cover_requests_that_come_later(measured: Measurements) -> None:
    quoted = measured.all_quoted()
    assert len(quoted) > 600
    assert 0.92 <= coverage_of(quoted) <= 0.98
    assert measured.num_refused == 0


def test_the_parts_have_the_offers_of_their_time_and_the_last_longer_prompts() -> None:
    offers = [Offer(at_s=float(second), prompt_tokens=100, output_tokens=5) for second in range(8)]
    parts = drifting(offers, 8.0)
    assert [[offer.at_s for offer in part] for part in parts] == [[0.0, 1.0]] * 4
    assert [part[0].prompt_tokens for part in parts] == [100, 100, 100, 200]


def test_windows_are_whole_and_do_not_overlap() -> None:
    found = [Measured(1.0, float(number), 4.5) for number in range(10)]
    assert window_coverages(found, 3) == [1.0, pytest.approx(2 / 3), 0.0]
