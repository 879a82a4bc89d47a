"""One request to an upstream and its bytes on the wire."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from gateway.upstreams.target import Target

Headers = Sequence[tuple[bytes, bytes]]

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWNED_BY_CLIENT = frozenset((b"host", b"content-length", b"transfer-encoding", b"connection", b"expect", b"upgrade"))


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """What to send: `path` starts with a slash; framing and `host` are the client's business, not the caller's."""

    method: bytes
    path: bytes
    headers: Headers = ()
    body: bytes = b""


class RequestEncoder:
    """Turns requests for one target into bytes; refuses anything that could change the framing."""

    __slots__ = ("_base", "_host_line")

    def __init__(self, target: Target) -> None:
        self._base = target.base_path.encode()
        self._host_line = b"host: " + target.authority.encode()

    def encode_head(self, request: UpstreamRequest) -> bytes:
        """The head, up to and with its empty line. Raises ValueError on line breaks or headers we own."""
        lines = [b"%b %b%b HTTP/1.1" % (request.method, self._base, request.path), self._host_line]
        for name, value in request.headers:
            _check_name(name)
            lines.append(b"%b: %b" % (name, value))
        if request.body or request.method not in (b"GET", b"HEAD"):
            lines.append(b"content-length: %d" % len(request.body))
        num_breaks = len(lines) + 1
        lines += (b"", b"")
        head = b"\r\n".join(lines)
        if head.count(b"\n") != num_breaks or head.count(b"\r") != num_breaks or b"\0" in head:
            raise ValueError("a line break or NUL inside a method, path or header")
        if head.count(b" ", 0, head.index(b"\r")) != 2 or not request.path.startswith(b"/"):
            raise ValueError("the method and path may not hold spaces, and the path starts with a slash")
        return head


@lru_cache(maxsize=512)  # a pure check on the same few names for every request
def _check_name(name: bytes) -> None:
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{name!r} is not a header name")
    if name.lower() in _OWNED_BY_CLIENT:
        raise ValueError(f"header {name!r} is set by the client itself")
