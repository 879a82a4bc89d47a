"""A clock that the test moves, and what processes share."""

from __future__ import annotations

import pytest

from tests.gateway.admission.shared_meters import SharedMeters, Time


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def shared(time: Time) -> SharedMeters:
    return SharedMeters(time)
