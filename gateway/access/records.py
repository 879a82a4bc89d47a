"""Records of keys, admins and tokens in the store, and the join of two states of one record.

A record changes in one direction only. A key expires sooner or is revoked; a token ends; an admin changes (its epoch
grows) or is deleted; the decision whether keys are required has a growing number. Two states therefore join to the same
state in either order, whatever replica wrote them. Once a process has seen an end, nothing undoes it.
"""

from __future__ import annotations

from math import nextafter
from typing import Final

import msgspec

from gateway.access.accounts import ADMIN_PREFIX, TOKEN_PREFIX, Admin, ApiToken
from gateway.access.api_keys import PREFIX, StoredKey
from gateway.access.key_requirement import NAME as REQUIREMENT_NAME
from gateway.access.key_requirement import PREFIX as REQUIREMENT_PREFIX
from gateway.access.key_requirement import KeyRequirement, newer

Record = StoredKey | Admin | ApiToken | KeyRequirement

_TYPES: Final[dict[str, type[Record]]] = {
    PREFIX: StoredKey,
    ADMIN_PREFIX: Admin,
    TOKEN_PREFIX: ApiToken,
    REQUIREMENT_PREFIX: KeyRequirement,
}


def read_record(name: str, value: bytes) -> Record | None:
    """Return the record, or None when the name belongs to none; raises msgspec.DecodeError."""
    for prefix, kind in _TYPES.items():
        if name.startswith(prefix):
            record: Record = msgspec.json.decode(value, type=kind)
            return record
    return None


def encode_record(record: Record, over: bytes | None) -> bytes:
    """Return the stored form of a record, with the members that a later version put into the state that it replaces."""
    try:
        before = {} if over is None else msgspec.json.decode(over, type=dict[str, object])
    except msgspec.DecodeError:  # a new record over one that cannot be read
        before = {}
    return msgspec.json.encode({**before, **msgspec.to_builtins(record)})


def name_of(record: Record) -> str:
    """Return the record's name in the store."""
    match record:
        case StoredKey():
            return record.name
        case Admin():
            return ADMIN_PREFIX + record.name
        case ApiToken():
            return TOKEN_PREFIX + record.sha256
        case KeyRequirement():
            return REQUIREMENT_NAME


def has_expired(record: Record) -> bool:
    """Return whether the record is revoked or deleted."""
    if isinstance(record, KeyRequirement):
        return False
    return (record.revoked_at if isinstance(record, StoredKey) else record.deleted_at) is not None


def joined(mine: Record | None, theirs: Record) -> Record:
    """Return the join of two states of one record; the order does not matter."""
    match mine, theirs:
        case StoredKey(), StoredKey():
            return _joined_keys(mine, theirs)
        case Admin(), Admin():
            return _joined_admins(mine, theirs)
        case ApiToken(), ApiToken():
            return _joined_tokens(mine, theirs)
        case KeyRequirement(), KeyRequirement():
            return newer(mine, theirs)
    return theirs


def following_record(before: Record | None, new: Record) -> Record:
    """Return the new record, dated later than a deleted one of its name even when the clock disagrees."""
    if before is None or isinstance(before, KeyRequirement) or isinstance(new, KeyRequirement):
        return new
    if new.created_at > before.created_at:
        return new
    return msgspec.structs.replace(new, created_at=nextafter(before.created_at, float("inf")))


def _joined_keys(mine: StoredKey, theirs: StoredKey) -> StoredKey:
    if mine.sha256 != theirs.sha256:  # a new key under a name that the store had lost
        return max(mine, theirs, key=lambda key: (key.created_at, key.sha256))
    ends = [key.expires_at for key in (mine, theirs) if key.expires_at is not None]
    revoked = [key for key in (mine, theirs) if key.revoked_at is not None]
    first = min(revoked, key=lambda key: (key.revoked_at, key.revoked_by or ""), default=mine)
    return msgspec.structs.replace(
        mine, expires_at=min(ends, default=None), revoked_at=first.revoked_at, revoked_by=first.revoked_by
    )


def _joined_admins(mine: Admin, theirs: Admin) -> Admin:
    if mine.created_at != theirs.created_at:
        return max(mine, theirs, key=lambda admin: admin.created_at)
    if has_expired(mine) != has_expired(theirs):
        return mine if has_expired(mine) else theirs
    return max(mine, theirs, key=lambda admin: (admin.epoch, msgspec.json.encode(admin)))


def _joined_tokens(mine: ApiToken, theirs: ApiToken) -> ApiToken:
    ends = [token.expires_at for token in (mine, theirs) if token.expires_at is not None]
    gone = [token.deleted_at for token in (mine, theirs) if token.deleted_at is not None]
    return msgspec.structs.replace(mine, expires_at=min(ends, default=None), deleted_at=min(gone, default=None))
