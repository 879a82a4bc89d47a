"""ExportedPolicy: a policy file with a comment that names the revision it was made from.

Applying the file then replaces that revision and no other, as an edit on the admin page does.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

_LINE: Final = re.compile(r"^# revision (\d{1,8}-[0-9a-f]{12})[ \t]*\n?", re.MULTILINE)


class ExportedPolicy(NamedTuple):
    """A document, and the revision that it was made from."""

    document: str
    """The policy without the comment."""
    base: str | None
    """Entity tag of that revision, without quotes; None for a file that was not exported."""

    def render(self) -> str:
        """Return the text of the file."""
        return self.document if self.base is None else f"# revision {self.base}\n{self.document}"


def exported(document: str, etag: str) -> ExportedPolicy:
    """Return the export of a revision's document; a comment of an earlier export is replaced."""
    return ExportedPolicy(_LINE.sub("", document), etag.strip('"'))


def read_export(text: str) -> ExportedPolicy:
    """Return the document of a policy file, and its base where it was exported."""
    found = _LINE.search(text)
    return ExportedPolicy(text, None) if found is None else ExportedPolicy(_LINE.sub("", text), found[1])


def rebase_file(path: Path, old: ExportedPolicy, etag: str) -> bool:
    """Make the comment in a file name the revision that the file has just become; return whether it was changed.

    Raises OSError. A file that is no regular one, or has another comment by now, stays as it is.
    """
    new = etag.strip('"')
    if old.base in (None, new) or not path.is_file():
        return False
    before = path.read_bytes()
    after = before.replace(f"# revision {old.base}".encode(), f"# revision {new}".encode(), 1)
    if after != before:
        path.write_bytes(after)
    return after != before
