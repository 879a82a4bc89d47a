"""Revision: one state of the policy document, with who made it, when and why."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

RevisionKind = Literal["seed", "apply", "rollback", "promote"]

FILE_AUTHOR: Final = "file"
MAX_REASON_CHARS: Final = 500


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A document and its history's line. Never changes once it is written."""

    number: int
    """From 1, each one more than its parent; 0 for a file, which keeps no history."""
    revision: str
    """First 12 hex digits of the sha256 of the document: equal documents have equal ones."""
    parent: int | None
    author: str
    reason: str
    at: float
    """Seconds since 1970."""
    kind: RevisionKind
    of: int | None = None
    """The revision that a rollback went back to."""
    evidence: dict[str, Any] | None = None
    """What a canary measured before this was made of it."""
    document: str

    @property
    def etag(self) -> str:
        """Strong, and different for equal documents of different numbers."""
        return f'"{self.number}-{self.revision}"'

    def as_line(self) -> dict[str, Any]:
        """Everything but the document."""
        line: dict[str, Any] = msgspec.to_builtins(self)
        del line["document"]
        return {**line, "etag": self.etag}
