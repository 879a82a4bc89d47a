"""Which candidates each filter drops."""

from __future__ import annotations

import pytest

from routing_policies.decision import DropReason
from routing_policies.filters import Capacity, Filter, Health, InTime, Untried
from routing_policies.views import Attempt, DeploymentView
from tests.routing_policies.views import view

FIRST = Attempt()
AVOIDING_A = Attempt(avoid=frozenset({"a"}))
AFTER_A = Attempt(already_tried=frozenset({"a"}))


@pytest.mark.parametrize(
    ("a_filter", "candidate", "attempt", "expected"),
    [
        (Health(), view("a"), FIRST, None),
        (Health(), view("a", ready=False), FIRST, "not_ready"),
        (Health(), view("a", ejected=True), FIRST, "ejected"),
        (Health(), view("a", ready=False, ejected=True), FIRST, "ejected"),
        (Untried(), view("a"), FIRST, None),
        (Untried(), view("a"), AFTER_A, "already_tried"),
        (Untried(), view("b"), AFTER_A, None),
        (InTime(), view("a"), FIRST, None),
        (InTime(), view("a"), AVOIDING_A, "too_late"),
        (InTime(), view("b"), AVOIDING_A, None),
        (Capacity(), view("a", in_flight=9), FIRST, None),
        (Capacity(), view("a", in_flight=10), FIRST, "full"),
        (Capacity(), view("a", in_flight=11), FIRST, "full"),
    ],
)
def test_a_filter_names_its_reason(
    a_filter: Filter, candidate: DeploymentView, attempt: Attempt, expected: DropReason | None
) -> None:
    assert a_filter.drop_reason(candidate, attempt) == expected
