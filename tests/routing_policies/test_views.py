"""A deployment's view: its load against its permits."""

from __future__ import annotations

import pytest

from tests.routing_policies.views import view


@pytest.mark.parametrize(
    ("in_flight", "is_full", "load_ratio"), [(0, False, 0.0), (9, False, 0.9), (10, True, 1.0), (12, True, 1.2)]
)
def test_a_deployment_is_full_when_every_permit_is_in_use(in_flight: int, is_full: bool, load_ratio: float) -> None:
    candidate = view("a", in_flight=in_flight, max_in_flight=10)
    assert (candidate.is_full, candidate.load_ratio) == (is_full, load_ratio)


def test_a_view_cannot_be_changed_after_it_was_taken() -> None:
    with pytest.raises(AttributeError):
        view("a").in_flight = 3  # type: ignore[misc]
