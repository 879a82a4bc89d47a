"""AccessCopy: keys, admins and tokens on disk, as hashes, for a store that is lost or has lost them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gateway.access.accounts import Admin, ApiToken
from gateway.access.api_keys import StoredKey
from gateway.access.key_requirement import KeyRequirement
from gateway.access.records import Record
from gateway.util.private_files import replace_file
from gateway.util.regular_file import read_regular_file

KEYS_FILE: Final = "keys.last.json"
"""File name in `runtime_dir`."""


class SavedAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Records in the copy."""

    origin: str | None = None
    """Mark of the store that the records came from."""
    keys: list[StoredKey] = msgspec.field(default_factory=list)
    admins: list[Admin] = msgspec.field(default_factory=list)
    tokens: list[ApiToken] = msgspec.field(default_factory=list)
    requirement: KeyRequirement | None = None

    @property
    def records(self) -> list[Record]:
        """All records of the copy."""
        decided = () if self.requirement is None else (self.requirement,)
        return [*self.keys, *self.admins, *self.tokens, *decided]


def saved_of(records: Iterable[Record], origin: str | None) -> SavedAccess:
    """Group the records for `AccessCopy.write`."""
    saved = SavedAccess(origin=origin)
    for record in records:
        match record:
            case StoredKey():
                saved.keys.append(record)
            case Admin():
                saved.admins.append(record)
            case ApiToken():
                saved.tokens.append(record)
            case KeyRequirement():
                saved = msgspec.structs.replace(saved, requirement=record)
    return saved


class AccessCopy:
    """Best-effort copy of the records; the store stays authoritative."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, saved: SavedAccess) -> None:
        """Replace the copy atomically, readable by this user only; ignore failures."""
        with suppress(OSError):  # the store has the records too
            replace_file(self.path, msgspec.json.encode(saved))

    def read(self) -> SavedAccess | None:
        """Return the copy, or None without a readable one."""
        try:
            found = msgspec.json.decode(read_regular_file(self.path), type=SavedAccess | list[StoredKey])
        except (OSError, msgspec.DecodeError):
            return None
        return found if isinstance(found, SavedAccess) else SavedAccess(keys=found)  # older copies hold keys alone
