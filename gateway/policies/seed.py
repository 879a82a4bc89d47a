"""Seed: the document that an empty store starts with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway.policies.policy_file import PolicyFileError, read_document
from gateway.policies.revision import Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """File that is read while the store has no revision.

    The bundled document is followed a little longer: a new version of the program replaces it as long as it is
    unchanged.
    """

    path: Path
    is_bundled: bool

    @property
    def reason(self) -> str:
        """Reason of the first revision, for the history."""
        return "the bundled policy" if self.is_bundled else f"first start, from {self.path.name}"

    @property
    def serves_without_store(self) -> bool:
        """True if a gateway that has never seen its store may serve this document; only the bundled one qualifies."""
        return self.is_bundled

    def document(self) -> str:
        """Return the text; raises PolicyFileError."""
        try:
            return read_document(self.path).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise PolicyFileError(f"{self.path}: not UTF-8 (byte {error.start})") from error

    def replaces(self, newest: Revision) -> bool:
        """Return whether the store's newest revision is an older, unchanged bundled policy."""
        return self.is_bundled and newest.kind == "seed" and newest.document != self.document()
