"""Places of `^` and `$` in a pattern that the grammar compiler cannot read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

STARTS: Final = frozenset({"^", r"\A"})
ENDS: Final = frozenset({"$", r"\z"})
FLAGS: Final = frozenset({"(?i)", "(?-i)", "(?s)", "(?is)", "(?si)"})
"""Parts that change the meaning of the parts behind them, and match nothing themselves."""


@dataclass(slots=True)
class _Group:
    """Group that is open, or the whole pattern."""

    is_at_start: bool
    """True if no character can stand before the group."""
    has_ended: bool = False
    """True if an alternative of the group that is complete ends with `$`."""
    has_anchor: bool = False


def has_unreadable_anchor(parts: Sequence[str]) -> bool:
    """Return whether a pattern has a `^` behind a part, a `$` before one, or either in a repeated group.

    Args:
        parts: The pattern as openings and ends of groups, `|`, counts, anchors, flags and characters.
    """
    groups = [_Group(is_at_start=True)]
    is_at_start, has_ended, is_anchored = True, False, False
    for part in parts:
        if part[0] in "*+?{" and is_anchored:
            return True
        is_anchored = part in STARTS | ENDS
        groups[-1].has_anchor |= is_anchored
        if part == "|":
            groups[-1].has_ended |= has_ended
            is_at_start, has_ended = groups[-1].is_at_start, False
        elif part == ")" and len(groups) > 1:
            group = groups.pop()
            groups[-1].has_anchor |= group.has_anchor
            is_at_start, has_ended, is_anchored = False, has_ended or group.has_ended, group.has_anchor
        elif part in ENDS:
            has_ended = True
        elif part not in FLAGS:
            if has_ended or (part in STARTS and not is_at_start):
                return True
            if part[0] == "(":
                groups.append(_Group(is_at_start))
            elif part not in STARTS:
                is_at_start = False
    return False
