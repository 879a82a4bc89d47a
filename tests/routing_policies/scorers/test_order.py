"""The scorer in the order that the route lists its candidates."""

from __future__ import annotations

import pytest

from routing_policies.scorers.order import Order
from tests.routing_policies.views import view


@pytest.mark.parametrize(
    ("names", "expected"), [("a", [1.0]), ("abcd", [1.0, 0.75, 0.5, 0.25]), ("dcba", [1.0, 0.75, 0.5, 0.25])]
)
def test_the_first_has_the_most_and_the_last_something(names: str, expected: list[float]) -> None:
    assert Order().scores([view(name) for name in names]) == expected


def test_nothing_else_about_a_candidate_counts() -> None:
    busy, idle = view("a", in_flight=10, weight=0.1), view("b", weight=9.0)
    assert Order().scores([busy, idle]) == [1.0, 0.5]
