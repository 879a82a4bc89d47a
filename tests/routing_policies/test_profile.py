"""Filters, scorers and picker together: whole decisions."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing_policies.policy.values import SelectPolicy
from routing_policies.profile import profile_for
from routing_policies.views import Attempt, DeploymentView
from tests.routing_policies.views import view

WORKING: tuple[SelectPolicy, ...] = ("first_available", "weighted", "least_in_flight")


@pytest.mark.parametrize(
    ("name", "policy", "candidates", "tried", "expected"),
    [
        ("neutral: first in order", "first_available", [view("a"), view("b")], (), "a"),
        ("neutral: stable among equals", "least_in_flight", [view("b"), view("a")], (), "b"),
        ("first is down", "first_available", [view("a", ready=False), view("b")], (), "b"),
        ("first is ejected", "first_available", [view("a", ejected=True), view("b")], (), "b"),
        ("first is full", "first_available", [view("a", in_flight=10), view("b")], (), "b"),
        ("first was tried", "first_available", [view("a"), view("b")], ("a",), "b"),
        ("busy is not full", "first_available", [view("a", in_flight=9), view("b")], (), "a"),
        ("the emptier one", "least_in_flight", [view("a", in_flight=3), view("b", in_flight=2)], (), "b"),
        ("everyone is full", "least_in_flight", [view("a", in_flight=10), view("b", in_flight=10)], (), None),
        ("everyone was tried", "first_available", [view("a")], ("a",), None),
        ("nobody to choose from", "first_available", [], (), None),
        ("only one has a share left", "weighted", [view("a", ready=False, weight=99), view("b", weight=1)], (), "b"),
    ],
)
def test_who_is_chosen(
    name: str, policy: SelectPolicy, candidates: list[DeploymentView], tried: tuple[str, ...], expected: str | None
) -> None:
    decision = profile_for(policy).decide(candidates, Attempt(already_tried=frozenset(tried)), random.Random(7))
    assert decision.deployment == expected, name


def test_a_decision_keeps_what_led_to_it() -> None:
    candidates = [view("a", in_flight=10), view("b", in_flight=5), view("c", ready=False), view("d")]
    decision = profile_for("least_in_flight").decide(candidates, Attempt(), random.Random(7))
    assert decision.deployment == "d"
    assert decision.policy == "least_in_flight"
    assert decision.dropped == {"a": "full", "c": "not_ready"}
    assert decision.scores == {"b": {"headroom": 0.5}, "d": {"headroom": 1.0}}
    assert decision.totals == {"b": 0.5, "d": 1.0}
    assert decision.candidates == ("b", "d")
    assert decision.reason == "chosen from 2; a full, c not ready"


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ([view("a", in_flight=10), view("b", ready=False)], True),
        ([view("a", ready=False)], False),
        ([view("a", in_flight=10), view("b")], False),
        ([], False),
    ],
)
def test_waiting_helps_only_when_a_permit_is_all_that_is_missing(
    candidates: list[DeploymentView], expected: bool
) -> None:
    decision = profile_for("first_available").decide(candidates, Attempt(), random.Random(7))
    assert decision.is_saturated is expected


def test_a_policy_that_needs_a_setting_has_no_profile_by_its_name_alone() -> None:
    with pytest.raises(KeyError):
        profile_for("quality_then_latency")


candidates_of_any_kind = st.lists(
    st.builds(
        view,
        st.sampled_from("abcdef"),
        ready=st.booleans(),
        ejected=st.booleans(),
        in_flight=st.integers(0, 12),
        weight=st.floats(0.1, 100),
    ),
    unique_by=lambda candidate: candidate.id,
)


@given(candidates_of_any_kind, st.sampled_from(WORKING), st.sets(st.sampled_from("abcdef")), st.integers())
def test_every_decision_accounts_for_every_candidate_and_repeats_itself(
    candidates: list[DeploymentView], policy: SelectPolicy, tried: set[str], seed: int
) -> None:
    attempt = Attempt(already_tried=frozenset(tried))
    decision = profile_for(policy).decide(candidates, attempt, random.Random(seed))
    assert set(decision.dropped) | set(decision.scores) == {candidate.id for candidate in candidates}
    assert not set(decision.dropped) & set(decision.scores)
    assert (decision.deployment is None) == (not decision.totals)
    assert decision.deployment is None or decision.deployment in decision.totals
    assert all(0.0 <= total <= 1.0 for total in decision.totals.values())
    assert decision == profile_for(policy).decide(candidates, attempt, random.Random(seed))


@pytest.mark.parametrize(
    ("policy", "takes_first"), [("first_available", True), ("weighted", False), ("least_in_flight", False)]
)
def test_only_first_available_takes_the_first_fit_whatever_follows(policy: SelectPolicy, takes_first: bool) -> None:
    assert profile_for(policy).takes_first is takes_first
