"""Seed: the document that an empty store begins with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway.policies.policy_file import PolicyFileError, read_document
from gateway.policies.revision import Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """A file that is read when the store has no revision yet, and never again once somebody has made one.

    The bundled document is followed a little further: as long as nobody has changed it, a new version of the program
    brings its own.
    """

    path: Path
    is_bundled: bool

    @property
    def reason(self) -> str:
        """For the history."""
        return "the bundled policy" if self.is_bundled else f"first start, from {self.path.name}"

    @property
    def serves_without_store(self) -> bool:
        """Whether a gateway that never saw its store may serve this; a company's policy is not guessed at."""
        return self.is_bundled

    def document(self) -> str:
        """The text; raises PolicyFileError."""
        try:
            return read_document(self.path).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise PolicyFileError(f"{self.path}: not UTF-8 (byte {error.start})") from error

    def replaces(self, newest: Revision) -> bool:
        """Whether the store's only content is an older bundled policy that nobody has touched."""
        return self.is_bundled and newest.kind == "seed" and newest.document != self.document()
