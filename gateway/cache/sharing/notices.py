"""Notices: what gateway processes tell each other about the cache, as keys and values of the space `cache`.

e.FINGERPRINT           an entry
p.RANDOM                a purge
q.FINGERPRINT.DIGEST    an answer that is wrong
w.RANDOM                feedback on an answer that its receiver does not know
"""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.cache.exact.exact_tier import Selection
from gateway.cache.exact.sealed import seal, unseal

SPACE: Final = "cache"
ENTRY: Final = "e."
PURGE: Final = "p."
QUARANTINE: Final = "q."
DOUBT: Final = "w."

PURGE_S: Final = 7 * 24 * 3600.0
"""How long a purge is told to processes that were away."""
DOUBT_S: Final = 60.0


class Quarantine(msgspec.Struct, frozen=True):
    """An answer that is wrong."""

    exact: bytes
    digest: bytes
    until: float


class WrongReport(msgspec.Struct, frozen=True):
    """A tenant called the answer to this request wrong; who gave it from the cache knows which entry that was."""

    request_id: str
    tenant: str


Notice = Selection | Quarantine | WrongReport

_encode: Final = msgspec.msgpack.Encoder().encode
_KINDS: Final[dict[str, msgspec.msgpack.Decoder[Notice]]] = {
    PURGE: msgspec.msgpack.Decoder(Selection),
    QUARANTINE: msgspec.msgpack.Decoder(Quarantine),
    DOUBT: msgspec.msgpack.Decoder(WrongReport),
}


def entry_key(exact: bytes) -> str:
    """Where the entry of this fingerprint is."""
    return ENTRY + exact.hex()


def exact_of(key: str) -> bytes | None:
    """The fingerprint that an entry's key names; None for a key of another kind, or none of ours."""
    if not key.startswith(ENTRY):
        return None
    try:
        return bytes.fromhex(key[len(ENTRY) :])
    except ValueError:
        return None


def quarantine_key(quarantine: Quarantine) -> str:
    """Where it is; the same for all who say the same."""
    return f"{QUARANTINE}{quarantine.exact.hex()}.{quarantine.digest.hex()}"


def encode_notice(notice: Notice) -> bytes:
    """The stored form."""
    return seal(_encode(notice))


def decode_notice(key: str, value: bytes) -> Notice | None:
    """The notice, None for bytes that are damaged or of a version that this one does not know."""
    decoder, data = _KINDS.get(key[:2]), unseal(value)
    if decoder is None or data is None:
        return None
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
