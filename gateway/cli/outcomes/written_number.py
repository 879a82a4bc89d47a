"""Numbers as people and models write them: grouped, with a decimal comma, as a fraction, or with a power of ten."""

from __future__ import annotations

import math
import re
from typing import Final

_MINUS: Final = "-−–"
_GROUP_MARKS: Final = "'’_\u00a0\u2009\u202f"
_TOKEN: Final = re.compile(
    rf"(?:(?<![\w)])(?P<sign>[{_MINUS}])[$€£¥]?)?"
    rf"(?P<spaced>\d{{1,3}}(?: \d{{3}})+(?:[.,]\d+)?(?! ?\d))?(?(spaced)|(?P<plain>[.]?\d+(?:[.,{_GROUP_MARKS}]\d+)*))"
    r"(?:[eE](?P<power>[-+]?\d{1,3})(?!\w)|\s?(?:[×x*·]|\\times)\s?10\^\{?(?P<ten>[-−]?\d{1,3}))?"
)
_NUMERATOR: Final = re.compile(rf"(?:(?<![\w)])(?P<sign>[{_MINUS}]))?(?<![\d/.,])(?P<number>\d{{1,15}}) ?/ ?$")
_LATEX_FRACTION: Final = re.compile(r"\\[dt]?frac\{(\d{1,15})\}\{(\d{1,15})\}")
_THOUSANDS: Final = re.compile(r"[1-9]\d{0,2}(?:[.,]\d{3})+")
_MARK: Final = re.compile(r"[.,]")


def last_numbers(text: str) -> tuple[float, ...]:
    """Return the readings of the last number of a text; empty without one.

    Digits may be grouped by commas, spaces, apostrophes or, beside a decimal comma, by points. A group after a plain
    space may also be a number of its own, so that such a number has two readings.
    """
    text = _LATEX_FRACTION.sub(r"\1/\2", text)
    found = list(_TOKEN.finditer(text))
    if not found:
        return ()
    last = found[-1]
    over = _NUMERATOR.search(text, max(last.start() - 20, 0), last.start())
    if over is not None and last["plain"] is not None and last["plain"].isdecimal() and text[last.end() :][:1] != "/":
        divisor = float(last["plain"])
        share = float(over["number"]) / divisor if divisor else math.inf
        return (-share if over["sign"] else share,) if math.isfinite(share) else ()
    written = last["plain"] or last["spaced"]
    parts = {written.replace(" ", ""), written.rpartition(" ")[2]}
    power = int((last["power"] or last["ten"] or "0").replace("−", "-"))
    sign = -1.0 if last["sign"] else 1.0
    readings = (sign * _value(part) * float(f"1e{power}") for part in sorted(parts))
    return tuple(number for number in readings if math.isfinite(number))


def _value(written: str) -> float:
    """Return the value of digits with points and commas."""
    written = re.sub(f"[{_GROUP_MARKS}]", "", written)
    marks = _MARK.findall(written)
    if len(set(marks)) == 2 and marks.count(marks[-1]) == 1:  # both: the last one is the decimal mark
        head, _, tail = written.rpartition(marks[-1])
        return float(f"{_MARK.sub('', head)}.{tail}")
    is_grouped = _THOUSANDS.fullmatch(written) is not None
    if is_grouped and (len(marks) > 1 or marks[0] == ","):
        return float(_MARK.sub("", written))
    if len(marks) > 1:  # a list, a version, a date
        return float(_MARK.split(written)[-1])
    return float(written.replace(",", "."))
