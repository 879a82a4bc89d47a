"""Entry: one answer that was given once, whole, and may be given again."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.cache.exact.sealed import seal, unseal

SCHEMA: Final = 1
"""Of the stored form; entries of another are not read."""

_OVERHEAD_BYTES: Final = 600
"""What an entry costs in memory beyond its strings."""


class CacheEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Instants are seconds since 1970: entries outlive processes and are shared between them."""

    id: str
    """Also the request id of the answer that was stored: what feedback and purges name."""
    exact: bytes
    context: bytes
    text: str | None
    answer: bytes
    """A whole JSON completion."""
    tenant: str
    route: str
    deployment: str
    created_at: float
    expires_at: float
    cost_tokens: int = 0
    """Completion and uncached prompt tokens that a hit saves."""
    vector: bytes = b""
    """Of `text`, as half floats, while it travels; empty where it is kept, for the index has it."""
    encoder: str = ""
    """What made it."""
    schema: int = SCHEMA

    @property
    def num_bytes(self) -> int:
        """What it takes up in memory."""
        text = 0 if self.text is None else len(self.text)
        return len(self.answer) + text + _OVERHEAD_BYTES

    def is_fresh(self, now: float, max_age_s: float | None = None) -> bool:
        """Whether it may be served at `now`; an entry from the future (a clock was set back) counts as new."""
        return now < self.expires_at and (max_age_s is None or now - self.created_at <= max_age_s)


_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(CacheEntry)


def encode_entry(entry: CacheEntry) -> bytes:
    """The stored form."""
    return seal(_encode(entry))


def decode_entry(data: bytes) -> CacheEntry | None:
    """The entry, or None for bytes that are damaged or of another schema: to be deleted, never an error."""
    opened = unseal(data)
    if opened is None:
        return None
    try:
        entry = _decoder.decode(opened)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return entry if entry.schema == SCHEMA else None
