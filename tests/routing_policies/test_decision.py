"""A decision shows what was chosen, from how many, and why the others were not."""

from __future__ import annotations

import random

import pytest

from routing_policies.decision import Decision, DropReason
from routing_policies.profile import profile_for
from routing_policies.views import FIRST_ATTEMPT
from tests.routing_policies.views import view


def dropped(**reasons: DropReason) -> Decision:
    return Decision(None, "first_available", reasons)


@pytest.mark.parametrize(
    ("decision", "reason", "is_saturated"),
    [
        (dropped(), "no candidates", False),
        (dropped(a="not_ready", b="ejected"), "no candidate left; a not ready, b ejected", False),
        (dropped(a="ejected", b="full"), "no candidate left; a ejected, b full", True),
    ],
)
def test_without_a_choice_it_states_whether_waiting_helps(decision: Decision, reason: str, is_saturated: bool) -> None:
    assert decision.reason == reason
    assert decision.is_saturated is decision.is_possible is is_saturated
    assert (decision.candidates, decision.scores, decision.totals) == ((), {}, {})


def test_a_choice_reports_its_candidates_and_who_was_left_out() -> None:
    views = [view("a"), view("b", ready=False), view("c")]
    decision = profile_for("first_available").decide(views, FIRST_ATTEMPT, random.Random(1))
    assert decision.deployment == "a"
    assert decision.candidates == ("a", "c") == tuple(decision.scores)
    assert decision.reason == "chosen from 2; b not ready"
    assert decision.is_possible
    assert not decision.is_saturated


def test_a_choice_from_all_names_nobody_as_left_out() -> None:
    decision = profile_for("first_available").decide([view("a")], FIRST_ATTEMPT, random.Random(1))
    assert decision.reason == "chosen from 1"
