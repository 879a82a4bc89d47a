"""cache-control, as far as a chat request can mean it."""

from __future__ import annotations

import pytest

from gateway.cache.exact.control import NO_WISHES, CacheControl, parse_cache_control


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, NO_WISHES),
        (b"no-cache", CacheControl(no_cache=True)),
        (b"No-Store, private", CacheControl(no_store=True)),
        (b"max-age=30", CacheControl(max_age_s=30.0)),
        (b'max-age="30", max-age=10', CacheControl(max_age_s=10.0)),
        (b"max-age=-1", NO_WISHES),
        (b"max-age=99999999999999", NO_WISHES),
        (b"public, s-maxage=5", NO_WISHES),
        (b"no-cache," * 500, NO_WISHES),
    ],
)
def test_directives_that_count(value: bytes | None, expected: CacheControl) -> None:
    assert parse_cache_control(value) == expected
