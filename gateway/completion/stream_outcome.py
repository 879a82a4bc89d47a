"""StreamOutcome: the content of a stream's events, read in blocks so that a passing piece costs next to nothing.

Usual events are read together, and only the JSON around their text. From the first unusual one of a block on, each
is read by the grammar of event streams: an error, a comment, several `data` lines, other line ends.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from gateway.chat.strict_json import LONG_BYTES
from gateway.completion.answer_end import AnswerEnd, frames_of, is_too_detailed
from gateway.completion.answer_json import document_of, is_utf8
from gateway.completion.stated_errors import ERROR_EVENT
from gateway.upstreams.http1.sse import HEARTBEATS, STRAY, SseDecoder, SseError, SseEvent

BLOCK_BYTES: Final = 16 * 1024
"""Bytes that are read together: a tenth of a millisecond of work."""
MAX_READ_BYTES: Final = 1024 * 1024
"""Bytes above which an event is not read: it carries images or sound, and another event may hold the answer's end."""

DONE: Final = b"[DONE]"
_DONE_EVENTS: Final = (b"data: [DONE]\n\n", b"data:[DONE]\n\n")
_FINISH: Final = re.compile(rb'"finish_reason"\s*+:\s*+"')
_FIELD: Final = b"data:"
_NULL: Final = b"null"
_SEAM: Final = b"\n\ndata:"
_MAX_DECODED_VALUES: Final = 20_000
"""Values of one long event that the event loop decodes; an event of more has no error in it that is worth that."""


class StreamOutcome:
    """Outcome of a stream: feed every piece, cut anywhere; read `end()` after the last one, or at any time."""

    __slots__ = ("_decoder", "_end", "_num_bytes", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._num_bytes = 0
        self._decoder = SseDecoder(MAX_READ_BYTES, shows_strays=True)
        self._end = AnswerEnd()

    def feed(self, piece: bytes) -> None:
        """Feed one piece of the stream."""
        self._pieces.append(piece)
        self._num_bytes += len(piece)
        if self._num_bytes > BLOCK_BYTES:
            self._read()

    def end(self, *, is_over: bool = True) -> AnswerEnd:
        """Return the state of the stream so far; with `is_over`, an event without an end counts, too."""
        self._read()
        if is_over and self._decoder.has_pending:
            self._take_events(b"\n\n")
        return self._end

    def _read(self) -> None:
        block = b"".join(self._pieces)
        self._pieces.clear()
        self._num_bytes = 0
        if not block:
            return
        if b"\r" in block and not block.endswith(b"\r"):
            block = block.replace(b"\r\n", b"\n")
        if is_too_detailed(block):
            self._end.is_coarse = True
            self._end.has_done = self._end.has_done or _FINISH.search(block) is not None
            return
        if not self._decoder.has_pending and block.startswith(_FIELD):
            block = self._read_frames(block)
        if block in _DONE_EVENTS and not self._decoder.has_pending:
            self._end.has_done = True
        elif block:
            self._take_events(block)

    def _read_frames(self, block: bytes) -> bytes:
        """Read the usual events that `block` begins with; returns what is left of it."""
        cut = block.rfind(b"\n\n") + 2
        if cut < 2:
            return block
        done = next((mark for mark in _DONE_EVENTS if block.endswith(mark, 0, cut)), b"")
        whole = block[: cut - len(done)]
        if not whole:
            return block
        # No JSON string holds a line end, so that a seam is never text.
        if not whole.isascii() and not is_utf8(whole):
            return block
        try:
            frames = frames_of(b"[%b]" % whole[len(_FIELD) : -2].replace(_SEAM, b","))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return block  # a comment, a line end of another kind, or nothing that is understood
        num_read = self._end.see_frames(frames)
        if num_read == len(frames):
            return block[len(whole) :]
        events = whole.split(b"\n\n", num_read)
        return block[len(whole) - len(events[-1]) :] if len(events) == num_read + 1 else block

    def _take_events(self, block: bytes) -> None:
        try:
            events = self._decoder.feed(block)
        except SseError:
            self._end.is_coarse = True
            self._decoder = SseDecoder(MAX_READ_BYTES, shows_strays=True)
            return
        for event in events:
            self._take(event)

    def _take(self, event: SseEvent) -> None:
        if event.data.strip() == DONE and event.event == "message":
            self._end.has_done = True
        elif event.event == STRAY:
            self._end.see_stray(document_of(event.data))
        elif len(event.data) > LONG_BYTES and event.data.count(b",") > _MAX_DECODED_VALUES:
            self._end.is_coarse = True
        elif event.data.strip() or event.event == ERROR_EVENT:
            document = document_of(event.data)
            self._end.is_unreadable = self._end.is_unreadable or is_unreadable(event, document)
            self._end.see(document, event.event)


def is_unreadable(event: SseEvent, document: Any) -> bool:
    """Return whether an event that clients read as JSON is none; `document` is what was read from it."""
    if document is not None or event.event != "message":
        return False
    data = event.data.strip()
    return bool(data) and data != _NULL and data.decode("latin-1").lower() not in HEARTBEATS


def end_of_stream(stream: bytes) -> AnswerEnd:
    """Return how a whole stream ended."""
    outcome = StreamOutcome()
    outcome.feed(stream)
    return outcome.end()
