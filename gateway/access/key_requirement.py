"""KeyRequirement: the operators' decision whether programs on this machine may call without an API key."""

from __future__ import annotations

from typing import Final

import msgspec

PREFIX: Final = "requirement/"
NAME: Final = f"{PREFIX}keys"


class KeyRequirement(msgspec.Struct, frozen=True, kw_only=True):
    """One decision; the one with the highest number is in force."""

    is_required: bool
    """True if a request without a key is refused."""
    number: int
    """Counter of the decisions, so that replicas agree on the newest."""
    changed_at: float
    changed_by: str


def newer(mine: KeyRequirement, theirs: KeyRequirement) -> KeyRequirement:
    """Return the decision in force of two; of two at once, the one that requires keys."""
    return max(mine, theirs, key=lambda one: (one.number, one.is_required, one.changed_at, one.changed_by))
