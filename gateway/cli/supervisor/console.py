"""Console: lines from several processes on one terminal, each after its name."""

from __future__ import annotations

import re
from typing import Any, Final, TextIO

OWN_NAME = "penstock"
_UNSEEN_IN_LINES: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_UNSEEN: Final = re.compile(rf"[\t\n]|{_UNSEEN_IN_LINES.pattern}")


def plain(text: str) -> str:
    """Make text of several lines safe for a terminal: other control characters are printed visibly, without effect."""
    return _UNSEEN_IN_LINES.sub(_visible, text)


def cells(found: Any) -> Any:
    """Return a JSON value for a listing: no text in it, such as a reason, can end its line or look like a column."""
    if isinstance(found, str):
        return _UNSEEN.sub(_visible, found)
    if isinstance(found, dict):
        return {cells(name): cells(value) for name, value in found.items()}
    return [cells(value) for value in found] if isinstance(found, list) else found


def one_line(text: str) -> str:
    """Return text of several lines as one, for a listing."""
    return "; ".join(cells(text.splitlines()))


def _visible(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()


class Console:
    """Writes `name | text` lines; a reader that went away is not an error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_open = True

    def line(self, name: str, text: str) -> None:
        """Print one line of a process."""
        self._write(f"{name:<8} | {text}\n")

    def print_line(self, text: str) -> None:
        """Print one line of our own."""
        self.line(OWN_NAME, text)

    def block(self, text: str) -> None:
        """Print text to copy, without a name before it."""
        self._write(f"\n{text}\n\n")

    def _write(self, text: str) -> None:
        if not self._is_open:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (BrokenPipeError, ValueError):  # the terminal is gone; the processes go on
            self._is_open = False
