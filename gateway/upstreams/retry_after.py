"""Retry time of a response: `retry-after-ms`, and `retry-after` as seconds or as a date (RFC 9110, section 10.2.3)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

_NUMBER: Final = re.compile(rb"[0-9]+(?:\.[0-9]*)?")
_MOST_DIGITS: Final = 12
"""Number of digits beyond which a number of seconds means for ever."""
_FOR_EVER_S: Final = 1e12


def retry_after_s(headers: Sequence[tuple[bytes, bytes]], wall: Callable[[], float] = time.time) -> float | None:
    """Return the seconds to wait, or None without a meaningful header.

    Milliseconds take precedence, as they are more exact. Of a repeated header the longest counts. A date is relative to
    the server's own `date`, since its clock may differ, else to `wall`.
    """
    for name, unit_s in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        parts = (part for key, value in headers if key == name for part in value.split(b","))  # some proxies join them
        waits = [wait_s for part in parts if (wait_s := _number(part)) is not None]
        if waits:
            return max(waits) * unit_s
    until = [at for key, value in headers if key == b"retry-after" and (at := _instant(value)) is not None]
    if not until:
        return None
    dates = [at for key, value in headers if key == b"date" and (at := _instant(value)) is not None]
    return max(max(until) - (dates[0] if dates else wall()), 0.0)


def _number(value: bytes) -> float | None:
    value = value.strip()
    if _NUMBER.fullmatch(value) is None:
        return None
    return float(value) if len(value.partition(b".")[0]) <= _MOST_DIGITS else _FOR_EVER_S


def _instant(date: bytes) -> float | None:
    """Return the seconds since 1970 of an HTTP date in any of its three forms, all in UTC."""
    try:
        found = parsedate_to_datetime(date.strip().decode("ascii"))
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        return found.timestamp()
    except (ValueError, OverflowError):  # no date, not ASCII, or an impossible year
        return None
