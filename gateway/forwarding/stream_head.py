"""StreamHead: the beginning of a stream, held until its first event with content.

A status of 200 is no success yet: the first event may be an error, or no event may come. Comments, the role and
events without content decide nothing, and are held with it.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from gateway.completion.answer_json import document_of
from gateway.completion.stated_errors import StatedError, stated_error, stated_in_choice
from gateway.completion.stream_outcome import DONE, is_unreadable
from gateway.errors import UpstreamFailed
from gateway.upstreams.http1.response import UpstreamResponse
from gateway.upstreams.http1.sse import STRAY, SseDecoder, SseError, SseEvent

MAX_HEAD_BYTES: Final = 64 * 1024
"""Bytes above which a beginning is passed on: it has an event larger than any error."""
_SLICE_BYTES: Final = 4096
_FIELD: Final = b"data:"
_EVENT_END: Final = re.compile(rb"\r?\n\r?\n|\r\r")
_TEXT: Final = re.compile(rb'"(?:content|reasoning_content|reasoning)"\s*+:\s*+"[^"]')
_WITHOUT_CONTENT: Final = frozenset({"role", "name"})

Beginning = Literal["unknown", "answer", "error", "nothing"]


class StreamHead:
    """Reader of a stream's beginning: feed pieces until `beginning` is known; `close` at the end of the stream."""

    __slots__ = ("_decoder", "_num_bytes", "beginning", "error")

    def __init__(self) -> None:
        self.beginning: Beginning = "unknown"
        """First content of the stream; `nothing` if it ended, was marked as done, or is no JSON, without an answer."""
        self.error: StatedError | None = None
        self._decoder: SseDecoder | None = None
        self._num_bytes = 0

    def feed(self, piece: bytes) -> None:
        """Feed one piece of the stream."""
        if self._decoder is None:
            if _is_text(piece):
                self.beginning = "answer"
                return
            self._decoder = SseDecoder(2 * MAX_HEAD_BYTES, shows_strays=True)
        for at in range(0, len(piece), _SLICE_BYTES):
            self._take(piece[at : at + _SLICE_BYTES])
            if self.beginning != "unknown":
                return

    def close(self) -> None:
        """Note that the stream has ended."""
        if self._decoder is not None and self.beginning == "unknown":
            self._take(b"\n\n")
        if self.beginning == "unknown":
            self.beginning = "nothing"

    def _take(self, data: bytes) -> None:
        assert self._decoder is not None, "made with the first piece"
        self._num_bytes += len(data)
        try:
            events = self._decoder.feed(data)
        except SseError:
            self.beginning = "answer"
            return
        for event in events:
            self._look_at(event)
            if self.beginning != "unknown":
                return
        if self._num_bytes > MAX_HEAD_BYTES:
            self.beginning = "answer"

    def _look_at(self, event: SseEvent) -> None:
        if event.data.strip() == DONE and event.event == "message":
            self.beginning = "nothing"
            return
        document = document_of(event.data)
        if event.event == STRAY:  # no client reads an answer there
            self.error = stated_error(document)
            self.beginning = "unknown" if self.error is None else "error"
            return
        self.error = stated_error(document, event.event) or _error_in_choices(document)
        if self.error is not None:
            self.beginning = "error"
        elif _has_content(document):
            self.beginning = "answer"
        elif is_unreadable(event, document):
            self.beginning = "nothing"


async def head_of(response: UpstreamResponse) -> StreamHead:
    """Wait until the beginning of a stream is known; its pieces stay with the response, less a byte-order mark.

    Raises:
        UpstreamError: The exchange failed.
    """
    head = await _read_head(response)
    response.drop_mark()
    return head


async def _read_head(response: UpstreamResponse) -> StreamHead:
    head, num_fed = StreamHead(), 0
    await response.wait_body()
    while True:
        waiting = response.waiting()
        for piece in waiting[num_fed:]:
            if head.beginning == "unknown":
                head.feed(piece)
        if head.beginning != "unknown":
            return head
        num_fed = len(waiting)
        if not await response.wait_more():
            if response.is_paused:
                head.beginning = "answer"  # too long to be held: it goes on as it is
            else:
                head.close()
            return head


def _is_text(piece: bytes) -> bool:
    """Return whether the piece plainly begins with text.

    That is: no word of an error before the end of the first event that has text. This usual case decodes nothing.
    """
    found = _TEXT.search(piece)
    if found is None or not piece.startswith(_FIELD, piece.rfind(b"\n", 0, found.start()) + 1):
        return False  # bare JSON is no event
    if DONE in piece[: found.start()]:  # clients read no further
        return False
    end = _EVENT_END.search(piece, found.end())
    return b"error" not in piece[: len(piece) if end is None else end.start()]


def _choices(document: Any) -> list[dict[str, Any]]:
    choices = document.get("choices") if isinstance(document, dict) else None
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _error_in_choices(document: Any) -> StatedError | None:
    return next((error for choice in _choices(document) if (error := stated_in_choice(choice)) is not None), None)


def _has_content(document: Any) -> bool:
    """Return whether an event carries content of any kind, a finish reason, or usage and nothing else."""
    if not isinstance(document, dict):
        return False
    choices = _choices(document)
    if not choices:
        return bool(document.get("usage"))
    for choice in choices:
        delta = choice.get("delta") or choice.get("message")
        stated = (
            [value for name, value in delta.items() if name not in _WITHOUT_CONTENT] if isinstance(delta, dict) else []
        )
        if any(stated) or choice.get("text") or choice.get("finish_reason"):
            return True
    return False


MAX_HELD_BYTES: Final = 256 * 1024
"""Bytes above which an event is passed on in parts."""

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
"""Largest event of an answer: a line beyond it never ends. Equal to the limit of a plain answer."""

_SEAM_BYTES: Final = 3
EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n")


class WholeEvents:
    """Splitter of a stream into whole events: feed pieces, send the result; `rest` is the event not yet whole."""

    __slots__ = ("_held", "_num_held", "_num_passed")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._num_held = 0
        self._num_passed = 0  # of an event that is passed on in parts

    @property
    def rest(self) -> bytes:
        """Return the event that is not whole yet."""
        return b"".join(self._held)

    @rest.setter
    def rest(self, data: bytes) -> None:
        self._held = [data] if data else []
        self._num_held = len(data)

    def feed(self, piece: bytes) -> bytes:
        """Return everything that is whole now; a piece that ends with an event, as most do, passes unchanged.

        Raises:
            UpstreamFailed: An event is too large.
        """
        if not self._held and piece.endswith(EVENT_ENDS):
            return piece
        # The seam may lie inside an end; what was searched before need not be searched again, nor copied.
        if self._held and len(self._held[-1]) >= _SEAM_BYTES and self._num_held + len(piece) <= MAX_HELD_BYTES:
            seam = self._held[-1][-_SEAM_BYTES:] + piece
            if not any(mark in seam for mark in EVENT_ENDS):
                self._hold(piece)
                return b""
        num_held = self._num_held
        data = b"".join([*self._held, piece])
        searched = max(num_held - _SEAM_BYTES, 0)
        end = max((found + len(mark) for mark in EVENT_ENDS if (found := data.rfind(mark, searched)) >= 0), default=0)
        if end:
            self._num_passed = 0
        if len(data) - end > MAX_HELD_BYTES:
            self._num_passed += len(data) - end
            if self._num_passed > MAX_EVENT_BYTES:
                raise UpstreamFailed(f"An event of the upstream's answer exceeds {MAX_EVENT_BYTES} bytes. Try again.")
            end = len(data)
        self.rest = data[end:]
        return data[:end]

    def _hold(self, piece: bytes) -> None:
        """Hold a piece; short ones join the one before, so that the last one always has a whole seam."""
        if len(piece) < _SEAM_BYTES:
            self._held[-1] += piece
        else:
            self._held.append(piece)
        self._num_held += len(piece)
