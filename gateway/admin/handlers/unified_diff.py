"""Two policies compared line by line, in the form that `patch` and git apply."""

from __future__ import annotations

import difflib
import os
from typing import Final

_MAX_UNIFIED_LINES: Final = 20_000
"""Bound on the lines of both texts: comparing them is quadratic."""

_NO_NEWLINE: Final = "\n\\ No newline at end of file\n"


def patch_name(name: str) -> str:
    """Return a file's name as `patch` and git read it: quoted, or ended by a tab, where it needs that."""
    if any(character < " " or character in '"\\\x7f' for character in name):
        return '"' + "".join(map(_quoted, os.fsencode(name))) + '"'
    return f"{name}\t" if " " in name else name


def _quoted(byte: int) -> str:
    return chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}"


def unified_diff(old: str, new: str, before: str, after: str) -> str:
    """Return what turns the old text into the new one, under their names; nothing where both are very long."""
    lines = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if sum(map(len, lines)) > _MAX_UNIFIED_LINES:
        return ""
    found = difflib.unified_diff(*lines, before, after)
    return "".join(line if line.endswith("\n") else f"{line}{_NO_NEWLINE}" for line in found)
