"""Revision: one state of the policy document, with its author, time and reason."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

RevisionKind = Literal["seed", "apply", "rollback", "promote"]

FILE_AUTHOR: Final = "file"
MAX_REASON_CHARS: Final = 500


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A document with its entry in the history; never changes once written."""

    number: int
    """Number from 1, one more than the parent's; 0 for a file, which keeps no history."""
    revision: str
    """First 12 hex digits of the document's SHA-256; equal for equal documents."""
    parent: int | None
    author: str
    reason: str
    at: float
    """Time of creation, in seconds since 1970."""
    kind: RevisionKind
    of: int | None = None
    """Revision that a rollback restored."""
    evidence: dict[str, Any] | None = None
    """Measurements of the canary trial that became this revision."""
    document: str

    @property
    def etag(self) -> str:
        """Strong entity tag; it differs for equal documents of different numbers."""
        return f'"{self.number}-{self.revision}"'

    def as_line(self) -> dict[str, Any]:
        """Return all fields but the document, with the entity tag."""
        line: dict[str, Any] = msgspec.to_builtins(self)
        del line["document"]
        return {**line, "etag": self.etag}
