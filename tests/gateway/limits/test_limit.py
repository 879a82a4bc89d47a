"""Limits that never change."""

from __future__ import annotations

import pytest

from gateway.limits.limit import StaticLimit


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_in_flight"):
        StaticLimit(0)
