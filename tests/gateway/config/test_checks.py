"""Checks that settings of several sections share."""

from __future__ import annotations

import pytest

from gateway.config.checks import ConfigError, require_address, require_range


def test_both_bounds_of_a_range_are_part_of_it() -> None:
    require_range("poll_s", 0.05, 0.05, 60.0)
    require_range("poll_s", 60.0, 0.05, 60.0)
    for value in (0.049, 60.1, float("nan")):
        with pytest.raises(ConfigError, match=r"^poll_s: expected 0\.05 to 60, got "):
            require_range("poll_s", value, 0.05, 60.0)


def test_whole_numbers_are_shown_as_such() -> None:
    with pytest.raises(ConfigError, match="expected 10 to 1000000, got 3"):
        require_range("max_revisions", 3, 10, 1_000_000)


@pytest.mark.parametrize("address", ["nonsense", "localhost:99999", "unix:", ":8080:"])
def test_an_address_that_cannot_be_bound_is_refused(address: str) -> None:
    require_address("127.0.0.1:0")
    with pytest.raises(ConfigError, match=r"^listen: "):
        require_address(address)
