"""How likely a cached response is right, and from which likelihood on it is given."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cache.similarity.decision import NEVER, Calibration, EntryAudits, MatchModel

REQUESTED, STORED = "What is the best way to prune a quince tree?", "What's the best way to prune quince trees?"


@pytest.fixture(scope="module")
def match_model() -> MatchModel:
    return MatchModel.shipped()


def match_probability(match_model: MatchModel, similarity: float = 0.97, track: EntryAudits | None = None) -> float:
    return match_model.match_probability(REQUESTED, STORED, similarity=similarity, runner_up=0.7, track=track)


def test_the_same_in_other_words_is_likely_right(match_model: MatchModel) -> None:
    assert match_probability(match_model) > match_model.threshold(0.05)


def test_what_is_forbidden_has_no_probability(match_model: MatchModel) -> None:
    requested, stored = "How do I enable the firewall?", "How do I disable the firewall?"
    assert (
        match_model.match_probability(
            requested, stored, similarity=0.999, runner_up=None, track=EntryAudits(num_right=1000)
        )
        == 0.0
    )


def test_what_is_not_similar_has_no_probability(match_model: MatchModel) -> None:
    assert match_probability(match_model, similarity=0.5) == 0.0
    assert match_probability(match_model, similarity=float("nan")) == 0.0


def test_more_similarity_never_makes_it_less_likely(match_model: MatchModel) -> None:
    steps = [match_model.coefficients.min_similarity + step * 0.002 for step in range(140)]
    found = [
        match_model.match_probability(REQUESTED, STORED, similarity=step, runner_up=step - 0.1, track=None)
        for step in steps
    ]
    assert found == sorted(found)
    assert found[-1] - found[0] > 0.2


def test_a_record_moves_the_probability_by_as_much_as_it_weighs(match_model: MatchModel) -> None:
    pooled = match_probability(match_model)
    assert match_probability(match_model, track=EntryAudits()) == pytest.approx(pooled)
    assert match_probability(match_model, track=EntryAudits(num_right=3)) > pooled
    assert match_probability(match_model, track=EntryAudits(num_wrong=1)) < pooled
    assert match_probability(match_model, track=EntryAudits(num_wrong=1000)) < 0.1
    assert match_probability(match_model, track=EntryAudits(num_right=1e6)) > 0.99


def test_a_smaller_bound_has_a_higher_threshold(match_model: MatchModel) -> None:
    thresholds = [match_model.threshold(bound) for bound in (0.001, 0.002, 0.005, 0.007, 0.01, 0.02, 0.03, 0.05)]
    assert thresholds == sorted(thresholds, reverse=True)
    assert len(set(thresholds)) == len(thresholds)
    assert match_model.threshold(1.0) == match_model.threshold(0.5) < thresholds[-1]


def test_below_what_can_be_stored_nothing_is_served(match_model: MatchModel) -> None:
    assert match_model.threshold(0.0) == NEVER > 1.0
    assert match_model.threshold(1e-9) == NEVER


def test_tightening_raises_the_threshold_up_to_serving_nothing(match_model: MatchModel) -> None:
    thresholds = [match_model.threshold(0.02, tightening=step) for step in (0.0, 0.25, 0.5, 0.75)]
    assert thresholds == sorted(thresholds)
    assert thresholds[-1] < 1.0
    assert match_model.threshold(0.02, tightening=1.0) == NEVER


def test_a_stricter_calibration_lowers_every_probability(match_model: MatchModel) -> None:
    shipped = match_model.calibration
    strict = match_model.with_calibration(Calibration(slope=shipped.slope, shift=shipped.shift - 1.0))
    assert match_probability(strict) < match_probability(match_model)
    assert strict.threshold(0.02) == match_model.threshold(0.02)


def test_coefficients_of_other_features_are_refused(match_model: MatchModel) -> None:
    other = msgspec.structs.replace(match_model.coefficients, features=("similarity",))
    with pytest.raises(ValueError, match="fit them again"):
        MatchModel(other)


def test_what_ships_names_its_origin_and_its_encoder(match_model: MatchModel) -> None:
    assert "coefficients only" in match_model.coefficients.origin
    assert match_model.coefficients.encoder


@given(st.text(max_size=80), st.text(max_size=80), st.floats(-1, 1), st.none() | st.floats(-1, 1))
@settings(max_examples=200, deadline=None)
def test_every_probability_is_a_probability(
    requested: str, stored: str, similarity: float, runner_up: float | None
) -> None:
    found = MatchModel.shipped().match_probability(
        requested, stored, similarity=similarity, runner_up=runner_up, track=None
    )
    assert 0.0 <= found <= 1.0
