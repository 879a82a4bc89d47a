"""Console: lines from several processes on one terminal, each after its name."""

from __future__ import annotations

import re
from typing import Final, TextIO

OWN_NAME = "penstock"
_UNSEEN: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Make foreign text safe for a terminal: control characters are printed visibly and have no effect."""
    return _UNSEEN.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


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
