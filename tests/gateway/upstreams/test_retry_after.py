"""How long an upstream asks to be left alone: a number, milliseconds, or a date by its own clock."""

from __future__ import annotations

import pytest

from gateway.upstreams.retry_after import retry_after_s

AT_FOUR = 1795363200.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"7", 7.0),
        (b" 7 ", 7.0),
        (b"0.5", 0.5),
        (b"3, 9", 9.0),
        (b"7,7", 7.0),
        (b"86400", 86_400.0),
        (b"99999999", 99_999_999.0),
        (b"9" * 400, 1e12),
        (b"Sun, 22 Nov 2026 16:00:30 GMT", 30.0),
        (b"Sunday, 22-Nov-26 16:00:30 GMT", 30.0),
        (b"Sun Nov 22 16:00:30 2026", 30.0),
        (b"sun, 22 nov 2026 17:00:30 +0100", 30.0),
        (b"Sun, 22 Nov 2026 15:00:00 GMT", 0.0),
        (b"soon", None),
        (b"-1", None),
        (b"+7", None),
        (b"7s", None),
        (b"1e3", None),
        (b"", None),
        (b"\xff", None),
        (b"Sun, 99 Nov 99999 16:00:30 GMT", None),
    ],
)
@pytest.mark.parametrize(
    "date",
    [[(b"date", b"Sun, 22 Nov 2026 16:00:00 GMT")], [(b"date", b"Sun Nov 22 16:00:00 2026")], [], [(b"date", b"?")]],
)
def test_retry_after_is_a_number_or_a_date(
    value: bytes, seconds: float | None, date: list[tuple[bytes, bytes]]
) -> None:
    def wall() -> float:
        return AT_FOUR

    assert retry_after_s([*date, (b"retry-after", value)], wall) == seconds
    assert retry_after_s(date, wall) is None
    assert retry_after_s([*date, (b"retry-after", value), (b"retry-after-ms", b"1500")], wall) == 1.5
    assert retry_after_s([(b"retry-after-ms", b"soon"), *date, (b"retry-after", value)], wall) == seconds


def test_of_a_repeated_retry_after_the_longest_counts() -> None:
    assert retry_after_s([(b"retry-after", b"5"), (b"retry-after", b"9"), (b"retry-after", b"2")]) == 9.0
    assert retry_after_s([(b"retry-after-ms", b"250"), (b"retry-after-ms", b"750")]) == 0.75
