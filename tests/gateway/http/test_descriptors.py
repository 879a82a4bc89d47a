"""Open files: how listeners share them."""

from __future__ import annotations

import pytest

from gateway.http.descriptors import share_connections


@pytest.mark.parametrize(
    ("wanted", "open_files", "shared"),
    [
        ([10_000, 256], 65_536, [10_000, 256]),
        ([10_000, 256], 1024, [499, 12]),
        ([10_000, 10_000], 1024, [256, 256]),
        ([10_000, 4], 256, [127, 4]),
        ([100], 64, [32]),
    ],
)
def test_listeners_share_half_the_open_files(wanted: list[int], open_files: int, shared: list[int]) -> None:
    assert share_connections(wanted, open_files) == shared
