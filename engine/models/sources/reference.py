"""HubReference: a model's name on the hub, as people write it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from glob import escape
from typing import Final

_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REFERENCE: Final = re.compile(
    rf"(?P<repo>{_NAME}/{_NAME})(?:@(?P<revision>[A-Za-z0-9][A-Za-z0-9._/-]*))?(?::(?P<file>[^:@\s]+\.gguf))?"
)
_UNSAFE: Final = frozenset({"", ".", ".."})
_PART: Final = re.compile(r"-\d{5}-of-(?P<count>\d{5})\.gguf$")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubReference:
    """A repository on the hub, with a revision and one GGUF file where they are named."""

    repo_id: str
    revision: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        revision = "" if self.revision is None else f"@{self.revision}"
        return f"{self.repo_id}{revision}" + ("" if self.file is None else f":{self.file}")

    @property
    def file_pattern(self) -> str:
        """Shell pattern of the named GGUF file, or of all parts where it is one of several; empty without a file."""
        if self.file is None:
            return ""
        part = _PART.search(self.file)
        return (
            escape(self.file) if part is None else f"{escape(self.file[: part.start()])}-?????-of-{part['count']}.gguf"
        )


def parse_reference(text: str) -> HubReference | None:
    """Return the parts of `org/name[@revision][:file.gguf]`; None for a text of any other form."""
    found = _REFERENCE.fullmatch(text)
    if found is None or not _UNSAFE.isdisjoint((found["file"] or "x").split("/")):
        return None
    if ".." in (found["revision"] or "") or found["repo"].endswith(".gguf"):
        return None
    return HubReference(repo_id=found["repo"], revision=found["revision"], file=found["file"])
