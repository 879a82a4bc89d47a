"""An upstream request: its bytes, and how long each part of its exchange may take."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from math import inf

import msgspec

from gateway.upstreams.http1.errors import FirstByteTimeout, InterChunkTimeout, TotalTimeout, UpstreamTimeout
from gateway.upstreams.http1.target import Target

Headers = Sequence[tuple[bytes, bytes]]

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MAX_BEGINS = 256
_ACCEPT_ENCODING = b"accept-encoding: identity\r\n"
"""Header against compression, which would only cost time: streams are relayed as they come, and answers are parsed."""
_OWNED_BY_CLIENT = frozenset((b"host", b"content-length", b"transfer-encoding", b"connection", b"expect", b"upgrade"))


class UpstreamRequest(msgspec.Struct, frozen=True):
    """Request to send; `path` starts with a slash, and the client itself adds framing and `host`."""

    method: bytes
    path: bytes
    headers: Headers = ()
    body: bytes = b""
    fixed: tuple[tuple[bytes, bytes], ...] = ()
    """Headers common to many requests; they come first, and are checked and encoded once."""
    is_at_root: bool = False
    """True if `path` begins at the server's root, also where the target has a path in front of every request's."""


class RequestEncoder:
    """Encoder of requests for one target; refuses anything that could change the framing."""

    __slots__ = ("_base", "_begins", "_host_line", "_root")

    def __init__(self, target: Target, *, proxy_line: bytes | None = None) -> None:
        """Encode for a target; `proxy_line` is the header for a proxy that takes the target's whole URL."""
        self._root = b"" if proxy_line is None else b"%b://%b" % (target.scheme.encode(), target.authority.encode())
        self._base = self._root + target.base_path.encode()
        self._host_line = b"host: %b\r\n%b" % (target.authority.encode(), proxy_line or b"")
        self._begins: dict[tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...], bool], bytes] = {}

    def encode_head(self, request: UpstreamRequest) -> bytes:
        """Return the head, including its empty line.

        Raises:
            ValueError: A line break, or a header that the client sets itself.
        """
        key = (request.method, request.path, request.fixed, request.is_at_root)
        begin = self._begins.get(key)
        if begin is None:
            if len(self._begins) >= _MAX_BEGINS:
                self._begins.clear()
            begin = self._begins[key] = self._encode_begin(request)
        rest = _encode_headers(request.headers)
        if request.body or request.method not in (b"GET", b"HEAD"):
            return b"%b%bcontent-length: %d\r\n\r\n" % (begin, rest, len(request.body))
        return b"%b%b\r\n" % (begin, rest)

    def _encode_begin(self, request: UpstreamRequest) -> bytes:
        base = self._root if request.is_at_root else self._base
        line = b"%b %b%b HTTP/1.1\r\n" % (request.method, base, request.path)
        _check_breaks(line, 1)
        if line.count(b" ") != 2 or not request.path.startswith(b"/"):
            raise ValueError("the method and path may not hold spaces, and the path starts with a slash")
        return line + self._host_line + _ACCEPT_ENCODING + _encode_headers(request.fixed)


def _encode_headers(headers: Headers) -> bytes:
    parts: list[bytes] = []
    for name, value in headers:
        _check_name(name)
        parts += (name, b": ", value, b"\r\n")
    lines = b"".join(parts)
    _check_breaks(lines, len(headers))
    return lines


def _check_breaks(lines: bytes, num_lines: int) -> None:
    if lines.count(b"\n") != num_lines or lines.count(b"\r") != num_lines or b"\0" in lines:
        raise ValueError("a line break or NUL inside a method, path or header")


@lru_cache(maxsize=512)  # a pure check on the same few names for every request
def _check_name(name: bytes) -> None:
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{name!r} is not a header name")
    if name.lower() in _OWNED_BY_CLIENT:
        raise ValueError(f"header {name!r} is set by the client itself")


class ExchangeTimeouts(msgspec.Struct, frozen=True, gc=False):
    """Limits in seconds; None switches one off."""

    connect_s: float | None = None
    """Seconds for name lookup, TCP and TLS together."""
    first_byte_s: float | None = None
    """Seconds from the moment the request is written to the first piece of the body (or the end, if it has none)."""
    inter_chunk_s: float | None = None
    """Seconds between two pieces of the body, while the gateway reads."""
    total_s: float | None = None
    """Seconds from `send` to the last byte."""

    def __post_init__(self) -> None:
        # Written out, for one is made for every request of a client with a timeout.
        if not (
            (self.connect_s is None or self.connect_s > 0)
            and (self.first_byte_s is None or self.first_byte_s > 0)
            and (self.inter_chunk_s is None or self.inter_chunk_s > 0)
            and (self.total_s is None or self.total_s > 0)
        ):
            raise ValueError(f"expected positive numbers or None, got {self!r}")


class Deadlines:
    """The instants at which one exchange becomes too late. Pure: callers pass the time, and it holds no timer.

    One instant belongs to the phase (first byte, then each gap) and one to the whole. A piece of the body only
    moves the former, so the timer that watches may sleep until the earlier of both and check again then.
    """

    __slots__ = ("_has_progress", "_is_suspended", "_phase_at", "_timeouts", "_total_at")

    def __init__(self, timeouts: ExchangeTimeouts, *, started_at: float, written_at: float) -> None:
        self._timeouts = timeouts
        self._phase_at = inf if timeouts.first_byte_s is None else written_at + timeouts.first_byte_s
        self._total_at = inf if timeouts.total_s is None else started_at + timeouts.total_s
        self._has_progress = False
        self._is_suspended = False

    @property
    def next_at(self) -> float:
        """The earliest instant at which a limit could pass; inf for never."""
        phase_at = inf if self._is_suspended else self._phase_at
        return phase_at if phase_at < self._total_at else self._total_at

    def progress(self, now: float) -> float:
        """Note a piece of the body; return the instant at which the next one is late."""
        self._has_progress = True
        gap_s = self._timeouts.inter_chunk_s
        at = self._phase_at = inf if gap_s is None else now + gap_s
        return at

    def suspend(self) -> None:
        """Note that the gateway stopped reading: silence is no longer the upstream's fault."""
        self._is_suspended = True

    def restart(self, now: float) -> None:
        """Note that the gateway reads again; a gap in progress starts over."""
        self._is_suspended = False
        if self._has_progress:
            self.progress(now)

    def expired(self, now: float) -> type[UpstreamTimeout] | None:
        """Return the first limit that has passed, if any."""
        if now >= self._total_at:
            return TotalTimeout
        if self._is_suspended or now < self._phase_at:
            return None
        return InterChunkTimeout if self._has_progress else FirstByteTimeout
