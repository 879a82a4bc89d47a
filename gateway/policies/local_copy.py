"""PolicyCopy: the revision in force on local disk, for a start without the store or with a bad file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.policies.revision import Revision
from gateway.util.private_files import replace_file
from gateway.util.regular_file import read_regular_file

COPY_FILE: Final = "policy.last.json"
"""File name in `runtime_dir` of the copy of a policy in the store."""
_NAME_CHARS: Final = 12


def file_copy_name(policy: Path) -> str:
    """Return the file name in `runtime_dir` of a policy file's copy; it differs for each policy file."""
    return f"policy.{sha256(bytes(policy)).hexdigest()[:_NAME_CHARS]}.last.json"


def is_lost(saved: Revision | None, newest: Revision | None) -> bool:
    """Return whether a store whose newest revision is `newest` has lost the revision `saved`.

    Revision numbers only grow, so a store with lower ones has lost some. The exception is a store whose newest revision
    was made later than `saved`: there an operator has started over.
    """
    if saved is None or saved.number == 0:
        return False
    return newest is None or (saved.number > newest.number and saved.at > newest.at)


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    """Fields beside those of the revision; copies by earlier versions have none."""

    digest: str = ""
    read_at: float = 0.0


class PolicyCopy:
    """Best-effort copy: a damaged one counts as absent, and a failed write is reported."""

    def __init__(
        self,
        path: Path,
        *,
        wall: Callable[[], float] = time.time,
        on_unwritten: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        self.path = path
        self._wall = wall
        self._on_unwritten = on_unwritten

    def write(self, revision: Revision, *, read_at: float | None = None) -> None:
        """Replace the copy unless it is newer.

        Args:
            revision: The revision to keep.
            read_at: Time at which a policy file was read, in seconds since 1970; None for now. It orders states of a
                file, which have no numbers.
        """
        now = self._wall()
        read_at = now if read_at is None else read_at
        found = self._find()
        if found is not None:
            saved, written = found
            if is_lost(saved, revision) or (saved.number == 0 and read_at < written.read_at <= now):
                return
            if saved == revision and written.digest:
                return
        fields = {**msgspec.to_builtins(revision), "digest": _digest(revision), "read_at": read_at}
        try:
            replace_file(self.path, msgspec.json.encode(fields))
        except OSError as error:
            self._on_unwritten(error)

    @property
    def is_there(self) -> bool:
        """Return whether anything has the copy's name, intact or not."""
        return os.path.lexists(self.path)

    def read(self) -> Revision | None:
        """Return the copy, or None without an intact one."""
        found = self._find()
        return None if found is None else found[0]

    def _find(self) -> tuple[Revision, _Written] | None:
        with suppress(OSError, msgspec.DecodeError, RecursionError):
            content = read_regular_file(self.path)
            revision = msgspec.json.decode(content, type=Revision)
            written = msgspec.json.decode(content, type=_Written)
            if written.digest in ("", _digest(revision)):
                return revision, written
        return None


def _digest(revision: Revision) -> str:
    fields: dict[str, Any] = msgspec.to_builtins(revision)
    return sha256(msgspec.json.encode(fields, order="deterministic")).hexdigest()
