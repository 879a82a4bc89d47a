"""Things that changed places."""

from __future__ import annotations

import pytest

from gateway.cache.similarity.directions import is_turned


@pytest.mark.parametrize(
    ("requested", "stored", "expected"),
    [
        ("a to b", "b to a", True),
        ("a b to c d", "c d to a b", True),
        ("a and b", "b and a", False),
        ("a b", "b a", False),
        ("a to b", "a to b", False),
        ("x beats y", "y beats x", True),
        ("", "", False),
    ],
)
def test_things_that_change_places_are_seen(requested: str, stored: str, expected: bool) -> None:
    assert is_turned(requested.split(), stored.split()) is expected
