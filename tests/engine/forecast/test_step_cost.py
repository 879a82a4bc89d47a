"""Costs follow what was measured, and a hiccup does not show."""

from __future__ import annotations

import pytest

from engine.forecast.step_cost import StepCosts


def measured(fixed: float = 0.2, each: float = 0.05) -> StepCosts:
    """Costs of a machine that behaves as the planner supposes."""
    costs = StepCosts()
    for num_seqs in (1, 2, 4):
        plain_s = 1.0 + 0.5 * num_seqs
        costs.observe_plain(num_seqs, plain_s)
        for drafts_per_seq in (1, 4, 8):
            seconds = plain_s * (1.0 + fixed + each * drafts_per_seq)
            costs.observe_verification(num_seqs, drafts_per_seq * num_seqs, seconds)
    return costs


def test_nothing_is_known_at_first() -> None:
    assert StepCosts().plain_s(1) == 0.0
    assert StepCosts().pass_s(1) is None


def test_plain_steps_are_interpolated_and_never_extrapolated() -> None:
    costs = measured()
    assert costs.plain_s(3) == pytest.approx(2.5)
    assert costs.plain_s(5) == 0.0


def test_fixed_and_growing_cost_of_verification_are_distinguished() -> None:
    costs = measured()
    assert costs.of_step(1) == pytest.approx((1.5, 0.2 * 1.5, 0.05 * 1.5))
    assert costs.of_step(4) == pytest.approx((3.0, 0.2 * 3.0, 0.05 * 3.0 / 4))


def test_a_hiccup_changes_nothing() -> None:
    costs = measured()
    for _ in range(3):
        costs.observe_plain(1, 1.5)
    costs.observe_plain(1, 100.0)
    assert costs.plain_s(1) == pytest.approx(1.5)


def test_passes_of_the_draft_model_are_shared_by_the_sequences() -> None:
    costs = measured()
    costs.observe_drafting(4, num_passes=2, num_unread=4, seconds=0.8)
    assert costs.pass_s(4) == pytest.approx(0.4)
    assert costs.of_step(4, with_model=True)[2] == pytest.approx(costs.of_step(4)[2] + 0.1)


def test_reading_a_text_is_counted_apart_from_drafting() -> None:
    costs = measured()
    costs.observe_drafting(1, num_passes=1, num_unread=1, seconds=0.4)
    costs.observe_drafting(1, num_passes=1, num_unread=100, seconds=2.4)
    assert costs.pass_s(1) == pytest.approx(0.4)
    assert costs.read_token_s == pytest.approx(0.02)


def plain_steps(costs: StepCosts, num_steps: int) -> None:
    for _ in range(num_steps):
        costs.observe_plain(1, 1.0)


def test_what_was_measured_on_a_busy_machine_is_believed_less_and_less_until_it_is_measured_anew() -> None:
    costs = measured(fixed=4.0, each=1.0)
    found = []
    for _ in range(4):
        found.append(costs.of_step(1)[1:])
        plain_steps(costs, 128)
    # The first pair is in units of the plain steps that were slow then, too.
    assert found[1:] == [pytest.approx((4.0 / 2**halved, 1.0 / 2**halved)) for halved in (1, 2, 3)]
    for num_drafts in (1, 4, 8):
        costs.observe_verification(1, num_drafts, 1.2 + 0.05 * num_drafts)
    assert costs.of_step(1)[1:] == pytest.approx((0.2, 0.05))


def test_what_is_measured_often_is_believed_as_it_is() -> None:
    costs = measured()
    for _ in range(8):
        plain_steps(costs, 100)
        costs.observe_verification(1, 4, 1.4)
    plain_steps(costs, 100)
    assert costs.of_step(1)[2] == pytest.approx(0.05, rel=0.2)


def test_a_step_is_plain_or_verified_something() -> None:
    costs = StepCosts()
    costs.observe(1, 0, 1.0)
    costs.observe(1, 4, 1.5)
    assert costs.plain_s(1) == 1.0
    assert costs.verification(1) == pytest.approx((0.25, 0.0625))


def test_free_draft_tokens_are_not_without_end() -> None:
    costs = StepCosts()
    costs.observe(1, 0, 1.0)
    costs.observe(1, 4, 1.0)
    assert costs.of_step(1)[2] > 0.0
