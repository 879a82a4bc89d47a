"""Copies for the cache: given up where there is no room."""

from __future__ import annotations

from gateway.cache.exact.capture import UNCOUNTED_BYTES, Capture


async def test_a_copy_for_the_cache_is_given_up_where_there_is_no_room() -> None:
    requested: list[int] = []

    def has_room(num_bytes: int) -> bool:
        requested.append(num_bytes)
        return len(requested) < 2

    capture = Capture(None, has_room)
    for _ in range(3 * UNCOUNTED_BYTES // 1000):
        capture.feed(b"x" * 1000)
    assert requested == [UNCOUNTED_BYTES, UNCOUNTED_BYTES]
    assert capture.completion() is None
