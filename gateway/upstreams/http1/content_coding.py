"""Inflation of bodies that a server compressed although the request accepts only `identity`, within bounds.

Every request sends `accept-encoding: identity`, so such servers and proxies ignore it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final, Protocol

from gateway.upstreams.http1.errors import CodingError, ExchangePhase
from gateway.util.header_values import listed

MAX_INFLATED_BYTES: Final = 64 * 1024 * 1024
"""Largest inflated size of one response."""
MAX_INFLATED_AT_ONCE: Final = 8 * 1024 * 1024
"""Largest inflated size of one piece as it was read."""

_GZIP: Final = frozenset({b"gzip", b"x-gzip"})
_WINDOW: Final = {b"gzip": 16 + zlib.MAX_WBITS, b"zlib": zlib.MAX_WBITS, b"raw": -zlib.MAX_WBITS}
_ZLIB_METHOD: Final = 8


class ContentDecoder(Protocol):
    """Decoder of a body's content coding."""

    def feed(self, piece: bytes) -> bytes:
        """Return the decoded bytes of a piece, possibly none yet; raises CodingError."""
        ...

    def finish(self) -> None:
        """Check that the body is whole; raises CodingError."""
        ...


def decoder_of(content_encoding: Iterable[bytes], status: int) -> ContentDecoder | None:
    """Return the decoder for a body, or None where it is not coded.

    For an unknown coding of an error's body, the decoder drops the body: the status suffices.

    Raises:
        CodingError: The coding is unknown.
    """
    codings = [coding for coding in listed(content_encoding) if coding != b"identity"]
    if not codings:
        return None
    if len(codings) == 1 and (codings[0] in _GZIP or codings[0] == b"deflate"):
        return Inflater(is_gzip=codings[0] in _GZIP)
    if status >= 400:
        return _Nothing()
    named = b", ".join(codings)[:80].decode("ascii", "replace")
    raise _error(f"the body is coded as '{named}', although the request accepts 'identity' alone")


class Inflater:
    """Decoder of gzip, in one or several members, and of deflate, with or without zlib's frame."""

    __slots__ = ("_has_begun", "_is_gzip", "_num_out", "_zlib")

    def __init__(self, *, is_gzip: bool) -> None:
        self._is_gzip = is_gzip
        self._has_begun = False
        self._num_out = 0
        self._zlib = zlib.decompressobj(_WINDOW[b"gzip" if is_gzip else b"zlib"])

    def feed(self, piece: bytes) -> bytes:
        """Return the inflated bytes of a piece; raises CodingError for a malformed or too large one."""
        if not self._has_begun and piece:
            self._has_begun = True
            if not self._is_gzip and piece[0] & 0x0F != _ZLIB_METHOD:
                self._zlib = zlib.decompressobj(_WINDOW[b"raw"])
        parts: list[bytes] = []
        room = min(MAX_INFLATED_AT_ONCE, MAX_INFLATED_BYTES - self._num_out)
        while piece:
            if self._zlib.eof:
                if not self._is_gzip:
                    raise _error("bytes follow the end of the compressed body")
                self._zlib = zlib.decompressobj(_WINDOW[b"gzip"])
            try:
                part = self._zlib.decompress(piece, room + 1)
            except zlib.error as error:
                raise _error(f"the body is not compressed as its header claims: {error}") from error
            room -= len(part)
            self._num_out += len(part)
            if room < 0:
                raise _error("the body inflates to more than is let in")
            parts.append(part)
            piece = self._zlib.unused_data if self._zlib.eof else self._zlib.unconsumed_tail
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def finish(self) -> None:
        """Check that the body is whole, as an empty one is; raises CodingError."""
        if self._has_begun and not self._zlib.eof:
            raise _error("the compressed body ended in its middle")


class _Nothing:
    """Decoder that drops the body."""

    __slots__ = ()

    def feed(self, piece: bytes) -> bytes:
        """Drop a piece."""
        return b""

    def finish(self) -> None:
        """Accept any end."""


def _error(message: str) -> CodingError:
    return CodingError(message, phase=ExchangePhase.BODY, response_started=True)
