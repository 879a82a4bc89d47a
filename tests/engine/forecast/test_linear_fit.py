"""Least squares over a stream, without negative terms."""

from __future__ import annotations

import random

import pytest

from engine.forecast.linear_fit import LinearFit


def fitted(terms: list[float], num: int = 50, seed: int = 1) -> LinearFit:
    rng, fit = random.Random(seed), LinearFit(len(terms))
    for _ in range(num):
        features = [rng.random() for _ in terms]
        fit.observe(features, sum(term * value for term, value in zip(terms, features, strict=True)))
    return fit


def test_the_terms_that_made_the_data_are_found() -> None:
    fit = fitted([0.5, 2.0, 0.0])
    fit.solve()
    assert fit.terms == pytest.approx([0.5, 2.0, 0.0], abs=1e-3)
    assert fit.predict([1.0, 1.0, 1.0]) == pytest.approx(2.5, abs=1e-3)


def test_a_term_that_would_be_negative_is_nothing_and_the_others_make_up_for_it() -> None:
    fit = fitted([-1.0, 2.0])
    fit.solve()
    assert fit.terms[0] == 0.0
    assert 0.0 < fit.terms[1] < 2.0


def test_without_measurements_every_prediction_is_zero() -> None:
    fit = LinearFit(2)
    fit.solve()
    assert fit.predict([3.0, 4.0]) == 0.0


def test_old_measurements_fade() -> None:
    fit = fitted([1.0])
    fit.fade(1e-6)
    for value in (1.0, 2.0, 3.0):
        fit.observe([value], 5.0 * value)
    fit.solve()
    assert fit.terms == pytest.approx([5.0], rel=1e-3)
    assert fit.weight == pytest.approx(3.0, abs=1e-3)


def test_a_sum_of_fits_is_the_fit_to_both_and_leaves_both_alone() -> None:
    whole, part = fitted([1.0, 3.0], seed=2), LinearFit(1)
    for value in (1.0, 2.0):
        part.observe([value], 3.0 * value)
    both = whole.plus(part, [1])
    both.solve()
    assert both.terms == pytest.approx([1.0, 3.0], abs=1e-3)
    assert (both.weight, whole.weight, part.weight) == (52.0, 50.0, 2.0)
