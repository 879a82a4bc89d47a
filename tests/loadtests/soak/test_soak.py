"""A soak of seconds: everything in it works, and nothing is left behind."""

from __future__ import annotations

import pytest

from tests.loadtests.bench import bench


@pytest.mark.e2e
def test_a_short_soak_leaves_nothing_behind() -> None:
    result = bench("soak", "--seconds", "12", "--clients", "6")
    assert (result["left_behind"], result["wrong_responses"]) == (0, 0)
    assert result["requests"] > 50
    assert result["disturbances"] > 0
