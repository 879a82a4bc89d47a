"""ResponseReader: HTTP/1.1 responses from bytes; sans-I/O, built on httptools, and stricter about framing.

One reader serves one connection, one response at a time: `begin(method)`, then `feed` until `is_complete`. The state
only moves forward: IDLE → HEAD → BODY → DONE → (begin) HEAD. Bytes outside HEAD and BODY are junk. Junk, or any doubt
about the end of a body, is a WireError, after which the connection is useless.

llhttp takes no input about a response without body (HEAD) and none about the end of input, so the reader tracks both.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import httptools


class WireError(ValueError):
    """Error for bytes that are not one well-framed response."""


class WireHeadTooLarge(WireError):
    """Error for a head, informational ones included, beyond its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """Bounds in bytes on the data that an upstream can make the gateway hold or parse."""

    max_head_bytes: int = 64 * 1024
    max_framing_bytes: int = 16 * 1024
    """Bytes of chunk-size lines, extensions and trailers without a byte of body between them."""


class _State(Enum):
    IDLE = 0
    HEAD = 1
    BODY = 2
    DONE = 3


_IDLE, _HEAD, _BODY, _DONE = _State.IDLE, _State.HEAD, _State.BODY, _State.DONE


class ResponseReader:
    """Parser of one response after another; `status`, `headers` and `pieces` are valid once `has_head`."""

    __slots__ = (
        "_fault",
        "_framing_bytes",
        "_head_bytes",
        "_is_bodiless",
        "_is_informational",
        "_is_until_close",
        "_limits",
        "_method",
        "_parser",
        "_state",
        "headers",
        "keep_alive",
        "pieces",
        "started",
        "status",
    )

    def __init__(self, limits: WireLimits) -> None:
        self._limits = limits
        self._state = _IDLE
        self._is_bodiless = False
        self._renew_parser()
        self._reset(b"")

    def _renew_parser(self) -> None:
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    def close(self) -> None:
        """Stop reading, and break the reference cycle with the parser. Idempotent."""
        self._state, self._parser = _IDLE, None

    def _reset(self, method: bytes) -> None:
        self._method = method
        self._fault: WireError | None = None
        self._head_bytes = 0
        self._framing_bytes = 0
        self._is_bodiless = False
        self._is_informational = False
        self._is_until_close = False
        self.started = False
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.keep_alive = False
        self.pieces: list[bytes] = []

    @property
    def has_head(self) -> bool:
        """True if the final (not 1xx) head is whole."""
        return self._state is _BODY or self._state is _DONE

    @property
    def is_complete(self) -> bool:
        """True if the response is whole."""
        return self._state is _DONE

    def begin(self, method: bytes) -> None:
        """Expect the response to a request with this method."""
        assert self._state is _IDLE or self._state is _DONE, "one response at a time"
        assert self._parser is not None, "not closed"
        if self._is_bodiless:  # llhttp may still expect a body that the rules forbid
            self._renew_parser()
        self._reset(method)
        self._state = _HEAD

    def feed(self, data: bytes) -> None:
        """Parse bytes and append pieces of the body to `pieces`; raises WireError."""
        parser = self._parser
        if parser is None or self._state is _IDLE or self._state is _DONE:
            raise WireError("bytes that belong to no request")
        self.started = True
        num_pieces = len(self.pieces)
        try:
            parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise self._fault or WireError(str(error) or "malformed response") from error
        except httptools.HttpParserUpgrade as error:
            raise WireError("switched protocols without a request to") from error
        if self._fault is not None:
            raise self._fault
        if self._state is _HEAD:
            self._count_head(len(data))
        elif self._state is _BODY:
            self._count_framing(len(data), has_body=len(self.pieces) > num_pieces)

    def eof(self) -> bool:
        """Record that the peer closed; return whether that ends the response."""
        if self._state is _BODY and self._is_until_close:
            self._state = _DONE
        return self._state is _DONE

    def _count_head(self, num_bytes: int) -> None:
        self._head_bytes += num_bytes
        if self._head_bytes > self._limits.max_head_bytes:
            raise WireHeadTooLarge(f"response head exceeds {self._limits.max_head_bytes} bytes")

    def _count_framing(self, num_bytes: int, *, has_body: bool) -> None:
        self._framing_bytes = 0 if has_body else self._framing_bytes + num_bytes
        if self._framing_bytes > self._limits.max_framing_bytes:
            raise WireError(f"over {self._limits.max_framing_bytes} bytes of chunk framing without a byte of body")

    def _refuse(self, message: str) -> None:
        # Recorded, not raised: httptools would wrap it, and feed() checks it in any case.
        if self._fault is None:
            self._fault = WireError(message)

    # Callbacks of httptools, in the order of a message.

    def on_message_begin(self) -> None:
        """Start a message."""
        if self._state is not _HEAD:
            self._refuse("bytes after the end of the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers are dropped."""
        if self._state is _HEAD:
            self.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Complete a head and determine the framing of its body."""
        if self._state is not _HEAD:
            return
        parser = self._parser
        assert parser is not None, "it calls while it is fed"
        status = parser.get_status_code()
        if status < 200:
            self._is_informational = True
            self.headers = []
            if status == 101 or status < 100:
                self._refuse(f"status {status} to a request that did not accept it")
            return
        self.status = status
        self.keep_alive = parser.should_keep_alive()
        self._state = _BODY
        self._frame(status)

    def _frame(self, status: int) -> None:
        length: bytes | None = None
        coding: bytes | None = None
        head_bytes = 0
        for name, value in self.headers:
            head_bytes += len(name) + len(value)
            if name == b"content-length":
                if length is not None:
                    self._refuse("two content-length headers")
                length = value
            elif name == b"transfer-encoding":
                coding = value if coding is None else coding + b"," + value
        if head_bytes > self._limits.max_head_bytes:
            self._fault = WireHeadTooLarge(f"response head exceeds {self._limits.max_head_bytes} bytes")
        if coding is not None and (length is not None or coding.strip().lower() != b"chunked"):
            self._refuse(f"transfer-encoding {coding[:40]!r} is not supported here")
        self._is_until_close = length is None and coding is None
        if self._method == b"HEAD" or status == 204 or status == 304:
            self._is_bodiless = True
            self._state = _DONE

    def on_body(self, data: bytes) -> None:
        """Add a piece of the body, already without its chunk framing."""
        if self._state is _BODY:
            self.pieces.append(data)
        else:
            self._refuse("a body where none is allowed")

    def on_message_complete(self) -> None:
        """End an informational message or the response."""
        if self._is_informational:
            self._is_informational = False
        elif self._state is _BODY:
            self._state = _DONE
