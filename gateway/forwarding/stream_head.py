"""StreamHead: the beginning of a stream, held until its first event that means something.

A status of 200 promises nothing: the first event may be an error, and there may be none at all. What comes before it
(comments, the role, events without content) tells neither, and is held with it.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from gateway.completion.stated_errors import StatedError, document_of, stated_error, stated_in_choice
from gateway.completion.stream_outcome import DONE
from gateway.upstreams.http1.response import UpstreamResponse
from gateway.upstreams.http1.sse import STRAY, SseDecoder, SseError, SseEvent

MAX_HEAD_BYTES: Final = 64 * 1024
"""A beginning that is longer has an event that is larger than any error: it is passed on."""
_SLICE_BYTES: Final = 4096
_FIELD: Final = b"data:"
_EVENT_END: Final = re.compile(rb"\r?\n\r?\n|\r\r")
_TEXT: Final = re.compile(rb'"(?:content|reasoning_content|reasoning)"\s*+:\s*+"[^"]')
_WITHOUT_MEANING: Final = frozenset({"role", "name"})

Beginning = Literal["unknown", "answer", "error", "nothing"]


class StreamHead:
    """Feed pieces until `beginning` is known; `close` when no more will come."""

    __slots__ = ("_decoder", "_num_bytes", "beginning", "error")

    def __init__(self) -> None:
        self.beginning: Beginning = "unknown"
        """What the stream begins with; `nothing`: it ended, or said that it was done, without an answer."""
        self.error: StatedError | None = None
        self._decoder: SseDecoder | None = None
        self._num_bytes = 0

    def feed(self, piece: bytes) -> None:
        """A piece of the stream came."""
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
        """No more will come: the stream ended."""
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
        elif _has_meaning(document):
            self.beginning = "answer"


async def head_of(response: UpstreamResponse) -> StreamHead:
    """Wait until the beginning of a stream is known; its pieces stay with the response. Raises UpstreamError."""
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
    """Whether the piece plainly begins with text: no word of an error before the end of the first event that has some.

    The usual case, without decoding anything.
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


def _has_meaning(document: Any) -> bool:
    """Whether an event carries content of any kind, the reason of an end, or usage and nothing else."""
    if not isinstance(document, dict):
        return False
    choices = _choices(document)
    if not choices:
        return bool(document.get("usage"))
    for choice in choices:
        delta = choice.get("delta") or choice.get("message")
        told = (
            [value for name, value in delta.items() if name not in _WITHOUT_MEANING] if isinstance(delta, dict) else []
        )
        if any(told) or choice.get("text") or choice.get("finish_reason"):
            return True
    return False
