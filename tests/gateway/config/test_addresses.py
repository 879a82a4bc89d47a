"""Addresses: which of them only this machine reaches."""

from __future__ import annotations

import pytest

from gateway.config.addresses import is_loopback


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:/a", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("myhost:1", False),
    ],
)
def test_what_counts_as_this_machine_only(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected
