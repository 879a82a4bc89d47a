"""Where one HTTP/1.1 response ends: a scanner that costs the client as little as possible. Sans-I/O.

It trusts the servers it is used with (this project's own) to frame well; it is no parser for the open internet.
"""

from __future__ import annotations

_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_DONE = b"data: [DONE]\n\n"


class BadResponse(ValueError):
    """The bytes are not a response this scanner understands."""


class ResponseScanner:
    """`begin`, then `feed` until it returns True; `status`, `body` and the rest are about the current response."""

    __slots__ = (
        "_head",
        "_is_chunked",
        "_missing",
        "_tail",
        "body",
        "has_done",
        "head",
        "keep_alive",
        "keep_body",
        "status",
    )

    def __init__(self, *, keep_body: bool = False) -> None:
        self.keep_body = keep_body
        self.begin()

    def begin(self) -> None:
        """Expect a new response."""
        self._head = b""
        self._tail = b""
        self._missing = 0
        self._is_chunked = False
        self.head = b""
        self.status = 0
        self.keep_alive = True
        self.has_done = False
        """Whether a chunked body held the end marker of an event stream."""
        self.body = bytearray()
        """Raw bytes after the head (chunk framing included), when `keep_body`."""

    @property
    def content(self) -> bytes:
        """The body as it was meant; needs `keep_body` and a whole response."""
        body = bytes(self.body)
        return unchunked(body) if self._is_chunked else body

    def feed(self, data: bytes) -> bool:
        """Whether the response is whole with `data`. Raises BadResponse."""
        if not self.status:
            self._head += data
            end = self._head.find(_HEAD_END)
            if end < 0:
                return False
            data = self._head[end + 4 :]
            self._read_head(self._head[: end + 2].lower())
        if self.keep_body:
            self.body += data
        if not self._is_chunked:
            self._missing -= len(data)
            if self._missing < 0:
                raise BadResponse("bytes after the end of the response")
            return self._missing == 0
        return self._feed_chunked(data)

    def _feed_chunked(self, data: bytes) -> bool:
        joined = self._tail + data if self._tail else data
        if not self.has_done and _DONE in joined:
            self.has_done = True
        self._tail = joined[-len(_DONE) - 8 :]
        # Events end in a blank line of LF, so CR LF CR LF after a zero can only be the last chunk.
        return joined.endswith(_LAST_CHUNK) and (len(joined) == 5 or joined[-6:-5] == b"\n")

    def _read_head(self, head: bytes) -> None:
        self.head = head
        try:
            self.status = int(head[9:12])
            at = head.find(b"\r\ncontent-length:")
            if at >= 0:
                self._missing = int(head[at + 17 : head.index(b"\r\n", at + 17)])
        except ValueError as error:
            raise BadResponse(f"not a response: {head[:60]!r}") from error
        self._is_chunked = at < 0 and b"\r\ntransfer-encoding: chunked" in head
        self.keep_alive = b"\r\nconnection: close" not in head
        if at < 0 and not self._is_chunked:
            raise BadResponse("a response without a length")


def unchunked(body: bytes) -> bytes:
    """A whole chunked body without its framing."""
    data, at = bytearray(), 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end], 16)
        if size == 0:
            return bytes(data)
        data += body[end + 2 : end + 2 + size]
        at = end + 2 + size + 2


def request_bytes(method: str, path: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()) -> bytes:
    """One request, ready to write."""
    host = () if any(name == "host" for name, _ in headers) else (("host", "loadtest"),)
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in (*host, *headers))]
    if body:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join(lines).encode() + _HEAD_END + body
