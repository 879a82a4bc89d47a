"""CacheControl: the directives of a client's `cache-control`, inside what the policy allows."""

from __future__ import annotations

from typing import Final

import msgspec

MAX_HEADER_BYTES: Final = 1024
_MAX_AGE: Final = b"max-age="


class CacheControl(msgspec.Struct, frozen=True):
    """Directives that count; all others are ignored (RFC 9111 section 5.2)."""

    no_cache: bool = False
    """Do not answer from the cache; the new response may be stored."""
    no_store: bool = False
    """Neither answer from the cache nor store the response."""
    max_age_s: float | None = None
    """Answer only from entries of at most this age."""


NO_WISHES: Final = CacheControl()


def parse_cache_control(value: bytes | None) -> CacheControl:
    """Return the directives of a header value; a malformed or oversized one has none."""
    if not value or len(value) > MAX_HEADER_BYTES:
        return NO_WISHES
    directives = [part.strip().lower() for part in value.split(b",")]
    max_age_s = None
    for directive in directives:
        if directive.startswith(_MAX_AGE):
            digits = directive[len(_MAX_AGE) :].strip(b'"')
            if digits.isdigit() and len(digits) <= 10:
                max_age_s = min(float(digits), max_age_s if max_age_s is not None else float("inf"))
    return CacheControl(b"no-cache" in directives, b"no-store" in directives, max_age_s)
