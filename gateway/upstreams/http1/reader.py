"""HTTP/1.1 responses out of bytes: sans-I/O, on httptools, stricter than it where framing is concerned.

Theory of operation. One reader serves one connection, one response at a time: `begin(method)`, then `feed` until
`is_complete`. The state only moves forward: IDLE → HEAD → BODY → DONE → (begin) HEAD. Whatever comes outside HEAD
and BODY is junk, and junk or any doubt about where a body ends is a WireError, after which the connection is useless.
llhttp cannot be told that a response has no body (HEAD) and has no "end of input", so the reader knows both itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import httptools


class WireError(ValueError):
    """The bytes are not one well-framed response."""


class WireHeadTooLarge(WireError):
    """The head, informational ones included, is larger than allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """Bounds on what an upstream can make us hold or parse, in bytes."""

    max_head_bytes: int = 64 * 1024
    max_framing_bytes: int = 16 * 1024
    """Chunk-size lines, extensions and trailers without a byte of body between them."""


class _State(Enum):
    IDLE = 0
    HEAD = 1
    BODY = 2
    DONE = 3


_IDLE, _HEAD, _BODY, _DONE = _State.IDLE, _State.HEAD, _State.BODY, _State.DONE


class ResponseReader:
    """Parses one response after another; `status`, `headers` and `pieces` are valid once `has_head`."""

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
        """Read no more: the parser leads back here, and the two would wait for the collector. Idempotent."""
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
        """Whether the final (not 1xx) head is whole."""
        return self._state is _BODY or self._state is _DONE

    @property
    def is_complete(self) -> bool:
        """Whether the response is whole."""
        return self._state is _DONE

    def begin(self, method: bytes) -> None:
        """Expect the response to a request with this method."""
        assert self._state is _IDLE or self._state is _DONE, "one response at a time"
        assert self._parser is not None, "not closed"
        if self._is_bodiless:  # llhttp may still be waiting for a body that the rules forbid
            self._renew_parser()
        self._reset(method)
        self._state = _HEAD

    def feed(self, data: bytes) -> None:
        """Parse; whole pieces of body are appended to `pieces`. Raises WireError."""
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
            raise WireError("switched protocols without being asked") from error
        if self._fault is not None:
            raise self._fault
        if self._state is _HEAD:
            self._count_head(len(data))
        elif self._state is _BODY:
            self._count_framing(len(data), has_body=len(self.pieces) > num_pieces)

    def eof(self) -> bool:
        """The peer closed. Returns whether that is how this response ends."""
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
        # Recorded, not raised: httptools would wrap it, and feed() looks at it in any case.
        if self._fault is None:
            self._fault = WireError(message)

    # What httptools calls, in the order of a message.

    def on_message_begin(self) -> None:
        """A status line starts."""
        if self._state is not _HEAD:
            self._refuse("bytes after the end of the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which is dropped."""
        if self._state is _HEAD:
            self.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """A head is whole; decide how its body ends."""
        if self._state is not _HEAD:
            return
        parser = self._parser
        assert parser is not None, "it calls while it is fed"
        status = parser.get_status_code()
        if status < 200:
            self._is_informational = True
            self.headers = []
            if status == 101 or status < 100:
                self._refuse(f"status {status} to a request that did not ask for it")
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
        """A piece of the body, already without its chunk framing."""
        if self._state is _BODY:
            self.pieces.append(data)
        else:
            self._refuse("a body where none is allowed")

    def on_message_complete(self) -> None:
        """A message ended: an informational one, or the response."""
        if self._is_informational:
            self._is_informational = False
        elif self._state is _BODY:
            self._state = _DONE
