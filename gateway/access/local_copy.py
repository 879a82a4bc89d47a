"""AccessCopy: keys, admins and tokens on disk, by their hashes, for a store that is lost or lost them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gateway.access.accounts import Admin, ApiToken
from gateway.access.api_keys import StoredKey
from gateway.access.records import Record
from gateway.util.private_files import replace_file

KEYS_FILE: Final = "keys.last.json"
"""In `runtime_dir`."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What was known when it was written."""

    origin: str | None = None
    """Which store it was: the mark that the store's first record came with."""
    keys: list[StoredKey] = msgspec.field(default_factory=list)
    admins: list[Admin] = msgspec.field(default_factory=list)
    tokens: list[ApiToken] = msgspec.field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        """All of them."""
        return [*self.keys, *self.admins, *self.tokens]


def kept_of(records: Iterable[Record], origin: str | None) -> Kept:
    """For `AccessCopy.write`."""
    kept = Kept(origin=origin)
    for record in records:
        match record:
            case StoredKey():
                kept.keys.append(record)
            case Admin():
                kept.admins.append(record)
            case ApiToken():
                kept.tokens.append(record)
    return kept


class AccessCopy:
    """Best effort: a copy that cannot be written or read is no copy, and the store is what counts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, kept: Kept) -> None:
        """Replace the copy, which only this user reads; readers see the old one or the new one."""
        with suppress(OSError):  # the store has it all the same
            replace_file(self.path, msgspec.json.encode(kept))

    def read(self) -> Kept | None:
        """The copy, None when there is none that can be read."""
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=Kept | list[StoredKey])
        except (OSError, msgspec.DecodeError):
            return None
        return found if isinstance(found, Kept) else Kept(keys=found)  # once it held keys alone
