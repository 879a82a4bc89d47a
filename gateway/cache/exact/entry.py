"""CacheEntry: one whole response that may be served again."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from gateway.cache.exact.sealed import SealedCodec

SCHEMA: Final = 1
"""Version of the stored form; entries of another version are not read."""

_OVERHEAD_BYTES: Final = 760
"""Memory of an entry beyond its text and answer, its places in the tier included."""


class CacheEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A cached response. Instants are seconds since 1970: entries outlive processes and are shared between them."""

    id: str
    """The id of the request whose response was stored; feedback and purges name it."""
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
    """The embedding of `text` as half floats while the entry travels; empty at rest, where the index has it."""
    encoder: str = ""
    """The encoder that made the vector."""
    schema: int = SCHEMA

    @property
    def num_bytes(self) -> int:
        """Memory of the entry; a character takes one, two or four bytes, by the widest of its text."""
        text = 0 if self.text is None else sys.getsizeof(self.text)
        return len(self.answer) + text + _OVERHEAD_BYTES

    def is_fresh(self, now: float, max_age_s: float | None = None) -> bool:
        """Return whether it may be served at `now`; an entry from the future (a clock was set back) counts as new."""
        return now < self.expires_at and (max_age_s is None or now - self.created_at <= max_age_s)


_codec: Final = SealedCodec(CacheEntry)

encode_entry: Final = _codec.encode


def decode_entry(data: bytes) -> CacheEntry | None:
    """Return the entry, or None for bytes that are damaged or of another schema; these are to be deleted."""
    entry = _codec.decode(data)
    return entry if entry is not None and entry.schema == SCHEMA else None
