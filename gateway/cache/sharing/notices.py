"""Notices: messages of gateway processes about the cache, as keys and values of the space `cache`.

e.FINGERPRINT           an entry
p.RANDOM                a purge
q.FINGERPRINT.DIGEST    a response that is wrong
w.RANDOM                feedback on a response that its receiver does not have
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.cache.exact.exact_tier import Selection
from gateway.cache.exact.sealed import SealedCodec

SPACE: Final = "cache"
ENTRY: Final = "e."
PURGE: Final = "p."
QUARANTINE: Final = "q."
DOUBT: Final = "w."

PURGE_S: Final = 7 * 24 * 3600.0
"""Lifetime of a purge in the store, for processes that were away."""
DOUBT_S: Final = 60.0


class Quarantine(msgspec.Struct, frozen=True):
    """A response that is wrong."""

    exact: bytes
    digest: bytes
    until: float


class WrongReport(msgspec.Struct, frozen=True):
    """A tenant reported the response to this request as wrong; the process that served it has its entry."""

    request_id: str
    tenant: str


Notice = Selection | Quarantine | WrongReport

_CODECS: Final[dict[str, SealedCodec[Any]]] = {
    PURGE: SealedCodec(Selection),
    QUARANTINE: SealedCodec(Quarantine),
    DOUBT: SealedCodec(WrongReport),
}


def has_meaning(key: str) -> bool:
    """Return whether this version has a meaning for a key; others are of a later one, and stay."""
    return key.startswith((ENTRY, *_CODECS))


def entry_key(exact: bytes) -> str:
    """Return the key of the entry with this fingerprint."""
    return ENTRY + exact.hex()


def exact_of(key: str) -> bytes | None:
    """Return the fingerprint in an entry's key; None for a key of another kind."""
    if not key.startswith(ENTRY):
        return None
    try:
        return bytes.fromhex(key[len(ENTRY) :])
    except ValueError:
        return None


def quarantine_key(quarantine: Quarantine) -> str:
    """Return the key of a quarantine, the same for equal ones."""
    return f"{QUARANTINE}{quarantine.exact.hex()}.{quarantine.digest.hex()}"


def encode_notice(kind: str, notice: Notice) -> bytes:
    """Return the stored form of a notice."""
    return _CODECS[kind].encode(notice)


def decode_notice(key: str, value: bytes) -> Notice | None:
    """Return the notice, or None for bytes that are damaged or of an unknown version."""
    codec = _CODECS.get(key[:2])
    return None if codec is None else codec.decode(value)
