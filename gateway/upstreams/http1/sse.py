"""Server-sent events out of bytes and back: sans-I/O, indifferent to where the bytes were cut.

Follows the event-stream grammar of the WHATWG HTML standard (9.2.6): lines end in LF, CR or CRLF, a leading byte-order
mark is dropped, `data` lines are joined by LF, comments start with a colon, an empty line ends an event, and an event
that the stream's end cuts off is never delivered. Lines are cut as bytes, so a UTF-8 character may be split anywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_DONE = b"[DONE]"
_FIELD_NAME = re.compile(rb"[A-Za-z0-9_.-]+")
STRAY = "stray"
"""Name of the event that stands for a line outside the grammar."""

_LINES = re.compile(rb"([^\r\n]++)([\r\n]*+)")
"""A line that is not blank, and the line ends after it."""
_DATA = b"data:"
_DELTA = b'"delta"'
_WITHOUT_DATA = frozenset({b"event", b"id", b"retry"})
_MAX_IDLE_BYTES = 512
_EMPTY = re.compile(rb"\{\s*\}|null|\[\]")
_HEARTBEAT = re.compile(rb'"type"\s*:\s*"(?:ping|heartbeat|keep-?alive)"')
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_USAGE = re.compile(rb'"usage"\s*:\s*\{')

HEARTBEATS = frozenset({"ping", "heartbeat", "keepalive", "keep-alive"})
"""Names and types of events that only show that a connection is alive."""

MAX_EVENT_BYTES = 8 * 1024 * 1024


class SseError(ValueError):
    """One event is larger than the decoder accepts."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event; `data` is as sent, LF between its lines."""

    data: bytes
    event: str = "message"
    id: str | None = None
    """As given in this event; None when it has none."""

    @property
    def is_done(self) -> bool:
        """Whether this is the marker that ends an OpenAI stream."""
        return self.data == _DONE


class SseDecoder:
    """`feed` bytes as they come, get the events they complete."""

    __slots__ = (
        *("_data", "_event", "_id", "_is_after_cr", "_is_at_start"),
        *("_max_bytes", "_num_bytes", "_shows_strays", "_tail"),
    )

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES, *, shows_strays: bool = False) -> None:
        """`shows_strays`: a line that clients skip, but that a server wrote in place of an event, is an event, too.

        Those are bare JSON or HTML, and the field `error` of some servers.
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
        """Whether the stream, if it ended now, would cut an event off."""
        return bool(self._tail or self._data or self._event or self._id is not None)

    def feed(self, data: bytes) -> list[SseEvent]:
        """Events completed by `data`. Raises SseError when one grows past the limit."""
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
        """Whole lines, without their ends; the unfinished one stays in `_tail`."""
        if self._is_after_cr and data:
            # The CR was taken as a line's end when it came; the LF that may follow belongs to it.
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
            lines[0] = lines[0].removeprefix(_BOM)
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
    """A line that is no field of the grammar, as an event; None for fields, comments and blanks."""
    name, colon, value = line.partition(b":")
    if name == b"error" and colon:
        return SseEvent(value.strip(), STRAY)
    if not name or _FIELD_NAME.fullmatch(name) is not None or not line.strip():
        return None
    return SseEvent(line.removeprefix(_BOM), STRAY)


class SseProgress:
    """Tells pieces that carry something from pieces that only show that the connection is alive (heartbeats).

    Heartbeats are comments, blank lines, `id`, `retry` and `event` lines, events without data, and data that servers
    send as such. One must not keep a stalled generation alive.
    """

    __slots__ = ("_is_idle", "_is_in_heartbeat", "_is_line_start")

    def __init__(self) -> None:
        self._is_line_start = True
        self._is_idle = False  # the line that is not whole yet carries nothing
        self._is_in_heartbeat = False  # the event under way is named as a heartbeat

    def __call__(self, piece: bytes) -> bool:
        """Whether anything of `piece` is more than a heartbeat. What cannot be told yet, within a line, counts."""
        if self._is_line_start and piece.startswith(_DATA) and _DELTA in piece:
            self._see_end_of(piece)  # the common case, without looking at every line
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
    """Whether data says nothing: empty, an empty object, a heartbeat, or no choices and no usage."""
    if len(data) > _MAX_IDLE_BYTES:
        return False
    if not data or _EMPTY.fullmatch(data) is not None or _HEARTBEAT.search(data) is not None:
        return True
    return _NO_CHOICES.search(data) is not None and _USAGE.search(data) is None


def encode_event(data: bytes, event: str | None = None) -> bytes:
    """One event as bytes; a line break inside `data` becomes a further data line."""
    if event is not None and _LINE_END.search(event.encode()):
        raise ValueError("an event's name is one line")
    head = b"" if event is None else b"event: " + event.encode() + b"\n"
    return head + b"data: " + b"\ndata: ".join(_LINE_END.split(data)) + b"\n\n"


def encode_comment(text: str) -> bytes:
    """A comment, which clients ignore; it shows that the stream is alive."""
    if _LINE_END.search(text.encode()):
        raise ValueError("a comment is one line")
    return b": " + text.encode() + b"\n\n"
