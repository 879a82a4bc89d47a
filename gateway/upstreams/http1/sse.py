"""Server-sent events from bytes and back; sans-I/O, independent of how the bytes were cut.

The decoder follows the event-stream grammar of the WHATWG HTML standard (9.2.6). Lines end in LF, CR or CRLF. A leading
byte-order mark is dropped, `data` lines are joined by LF, comments start with a colon, and an empty line ends an event.
An event that the stream's end cuts off is never delivered. Lines are cut as bytes, so UTF-8 characters may be split
anywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gateway.util.header_values import media_type

EVENT_STREAM: Final = b"text/event-stream"

_LINE_END = re.compile(rb"\r\n|\n|\r")
BOM: Final = b"\xef\xbb\xbf"
"""Byte-order mark, which some servers put before a text."""
_DONE = b"[DONE]"
_FIELD_NAME = re.compile(rb"[A-Za-z0-9_.-]+")
STRAY = "stray"
"""Name of the event that represents a line outside the grammar."""

_LINES = re.compile(rb"([^\r\n]++)([\r\n]*+)")
"""Pattern of a line that is not blank, and the line ends after it."""
_DATA = b"data:"
_DELTA = b'"delta"'
_WITHOUT_DATA = frozenset({b"event", b"id", b"retry"})
_MAX_IDLE_BYTES = 512
_EMPTY = re.compile(rb"\{\s*\}|null|\[\]")
_HEARTBEAT = re.compile(rb'"type"\s*:\s*"(?:ping|heartbeat|keep-?alive)"')
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_USAGE = re.compile(rb'"usage"\s*:\s*\{')

HEARTBEATS = frozenset({"ping", "heartbeat", "keepalive", "keep-alive"})
"""Names and types of events that only keep a connection alive."""

MAX_EVENT_BYTES = 8 * 1024 * 1024


def is_event_stream(content_type: bytes) -> bool:
    """Return whether the content type is that of server-sent events, with any parameters."""
    return content_type == EVENT_STREAM or media_type(content_type) == EVENT_STREAM


class SseError(ValueError):
    """Error for an event larger than the decoder accepts."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event; `data` is as sent, with LF between its lines."""

    data: bytes
    event: str = "message"
    id: str | None = None
    """Id given in this event; None without one."""

    @property
    def is_done(self) -> bool:
        """True for the marker that ends an OpenAI stream."""
        return self.data == _DONE


class SseDecoder:
    """Incremental decoder; `feed` returns the events that the bytes complete."""

    __slots__ = (
        *("_data", "_event", "_id", "_is_after_cr", "_is_at_start"),
        *("_max_bytes", "_num_bytes", "_shows_strays", "_tail"),
    )

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES, *, shows_strays: bool = False) -> None:
        """Create a decoder at the start of a stream.

        Args:
            max_event_bytes: Largest size of one event.
            shows_strays: True to return lines outside the grammar as events too: bare JSON or HTML, and the field
                `error` of some servers. Clients skip them, but servers write them in place of an event.
        """
        self._max_bytes = max_event_bytes
        self._shows_strays = shows_strays
        self._tail = bytearray()
        self._is_at_start = True
        self._is_after_cr = False
        self._begin_event()

    def _begin_event(self) -> None:
        self._data: list[bytes] = []
        self._event = b""
        self._id: bytes | None = None
        self._num_bytes = 0

    @property
    def has_pending(self) -> bool:
        """True if the end of the stream now would cut off an event."""
        return bool(self._tail or self._data or self._event or self._id is not None)

    def feed(self, data: bytes) -> list[SseEvent]:
        """Return the events completed by `data`; raises SseError for one beyond the limit."""
        events: list[SseEvent] = []
        for line in self._lines(data):
            if line:
                self._take_line(line)
                if self._shows_strays and (stray := _stray(line)) is not None:
                    events.append(stray)
                continue
            if self._data:
                events.append(self._finish_event())
            self._begin_event()
        if self._num_bytes + len(self._tail) > self._max_bytes:
            raise SseError(f"one event exceeds {self._max_bytes} bytes")
        return events

    def _lines(self, data: bytes) -> list[bytes]:
        """Return whole lines without their ends; the unfinished one stays in `_tail`."""
        if self._is_after_cr and data:
            # The CR has ended a line already; an LF that follows belongs to it.
            self._is_after_cr = False
            data = data.removeprefix(b"\n")
        if not data:
            return []
        self._is_after_cr = data.endswith(b"\r")
        if self._tail and b"\n" not in data and b"\r" not in data:
            self._tail += data  # no line ends here: do not scan the tail again
            return []
        lines = _LINE_END.split(bytes(self._tail) + data if self._tail else data)
        self._tail = bytearray(lines.pop())
        if self._is_at_start:
            self._strip_mark(lines)
        return lines

    def _strip_mark(self, lines: list[bytes]) -> None:
        if lines:
            self._is_at_start = False
            lines[0] = lines[0].removeprefix(BOM)
        # Without a line's end yet, the mark (perhaps half of it) waits in the tail.

    def _take_line(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._num_bytes += len(value) + 1
            if self._num_bytes > self._max_bytes:
                raise SseError(f"one event exceeds {self._max_bytes} bytes")
        elif name == b"event":
            self._event = value
        elif name == b"id" and b"\0" not in value:
            self._id = value
        # Everything else (comments, retry, unknown fields) carries no event.

    def _finish_event(self) -> SseEvent:
        return SseEvent(
            data=b"\n".join(self._data),
            event=self._event.decode("utf-8", "replace") or "message",
            id=None if self._id is None else self._id.decode("utf-8", "replace"),
        )


def _stray(line: bytes) -> SseEvent | None:
    """Return a line that is no field of the grammar as an event; None for fields, comments and blank lines."""
    name, colon, value = line.partition(b":")
    if name == b"error" and colon:
        return SseEvent(value.strip(), STRAY)
    if not name or _FIELD_NAME.fullmatch(name) is not None or not line.strip():
        return None
    return SseEvent(line.removeprefix(BOM), STRAY)


class SseProgress:
    """Predicate that separates pieces with content from heartbeats, which only keep the connection alive.

    Heartbeats are comments, blank lines, `id`, `retry` and `event` lines, events without data, and data that servers
    send as such. A heartbeat must not keep a stalled generation alive.
    """

    __slots__ = ("_is_idle", "_is_in_heartbeat", "_is_line_start")

    def __init__(self) -> None:
        self._is_line_start = True
        self._is_idle = False  # True while the incomplete line has no content
        self._is_in_heartbeat = False  # True while the current event is named as a heartbeat

    def __call__(self, piece: bytes) -> bool:
        """Return whether any part of `piece` is more than a heartbeat; an undecided line counts."""
        if self._is_line_start and piece.startswith(_DATA) and _DELTA in piece:
            self._see_end_of(piece)  # the common case, without a scan of every line
            return True
        if piece[:1] in (b"\r", b"\n"):
            self._is_in_heartbeat = self._is_in_heartbeat and not self._is_line_start
            self._is_line_start = True
        for line in _LINES.finditer(piece):
            text, gap = line.groups()
            if self._is_line_start:
                self._is_idle = self._is_idle_line(text, is_whole=gap != b"")
            if not self._is_idle:
                self._see_end_of(piece)
                return True
            self._is_line_start = gap != b""
            if len(gap) > 1 and gap != b"\r\n":
                self._is_in_heartbeat = False  # a blank line ends the event
        return False

    def _see_end_of(self, piece: bytes) -> None:
        self._is_line_start = piece.endswith((b"\r", b"\n"))
        last_line = piece[max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1 :]
        self._is_idle, self._is_in_heartbeat = last_line.startswith(b":"), False

    def _is_idle_line(self, text: bytes, *, is_whole: bool) -> bool:
        if text.startswith(b":"):
            return True
        if not is_whole:
            return False
        name, _, value = text.partition(b":")
        value = value.strip()
        if name == b"event":
            self._is_in_heartbeat = value.decode("latin-1").lower() in HEARTBEATS
        elif name == b"data":
            return self._is_in_heartbeat or _is_idle(value)
        return name in _WITHOUT_DATA


def _is_idle(data: bytes) -> bool:
    """Return whether data has no content: empty, an empty object, a heartbeat, or no choices and no usage."""
    if len(data) > _MAX_IDLE_BYTES:
        return False
    if not data or _EMPTY.fullmatch(data) is not None or _HEARTBEAT.search(data) is not None:
        return True
    return _NO_CHOICES.search(data) is not None and _USAGE.search(data) is None


def encode_event(data: bytes, event: str | None = None) -> bytes:
    """Return one event as bytes; a line break inside `data` starts a further data line."""
    if event is not None and _LINE_END.search(event.encode()):
        raise ValueError("an event's name is one line")
    head = b"" if event is None else b"event: " + event.encode() + b"\n"
    return head + b"data: " + b"\ndata: ".join(_LINE_END.split(data)) + b"\n\n"
