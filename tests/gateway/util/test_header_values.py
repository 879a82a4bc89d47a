"""Header values without case: media types by their names, and lists over several headers."""

from __future__ import annotations

from gateway.util.header_values import listed


def test_a_list_may_be_spread_over_headers() -> None:
    assert listed([b"No-Store, max-age=5", b"", b" ,no-cache\t"]) == [b"no-store", b"max-age=5", b"no-cache"]
