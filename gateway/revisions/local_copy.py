"""LocalCopy: the revision in force, on this machine's disk, for a start with a store that is lost or has lost it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from gateway.local_file import replace_file
from gateway.revisions.revision import Revision

COPY_FILE: Final = "policy.last.json"
"""In `runtime_dir`."""


def is_lost(kept: Revision | None, newest: Revision | None) -> bool:
    """Whether a store whose newest revision is `newest` has lost the one that was kept here.

    Numbers only grow, so a store that is behind one has lost it; unless what it has was made later, as when somebody
    began anew on purpose.
    """
    if kept is None or kept.number == 0:
        return False
    return newest is None or (kept.number > newest.number and kept.at > newest.at)


class LocalCopy:
    """Best effort: a copy that cannot be written or read is no copy, and the store is what counts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, revision: Revision) -> None:
        """Replace the copy; readers see the old one or the new one."""
        replace_file(self._path, msgspec.json.encode(revision))

    def read(self) -> Revision | None:
        """The copy, None when there is none that can be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Revision)
        except (OSError, msgspec.DecodeError):
            return None
