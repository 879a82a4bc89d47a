"""TimingEvents: holds back the end of a stream so that its last event can carry the request's timing."""

from __future__ import annotations

import re
from typing import Final

from gateway.completion.answer_end import merge_timing

MAX_HELD_BYTES: Final = 256 * 1024

_SEAM_BYTES: Final = 3
_EVENT_END: Final = re.compile(rb"\r?\n\r?\n|\r\r")
_JSON_EVENT: Final = re.compile(rb"data: ?(\{.*\})[\r\n]*", re.DOTALL)


class TimingEvents:
    """Merger of the timing into a stream: feed the pieces, send the result, then the result of `finish`.

    It is used only when the client requested timing. It holds the last JSON event, anything after it (`[DONE]`,
    comments), and the unfinished event behind that.
    """

    __slots__ = ("_behind", "_last", "_num_held", "_unfinished")

    def __init__(self) -> None:
        self._last = b""
        self._behind: list[bytes] = []
        self._unfinished: list[bytes] = []
        """Pieces; every one but the first is long enough to contain any seam, or is the last."""
        self._num_held = 0
        """Number of bytes in both lists."""

    def feed(self, piece: bytes) -> bytes:
        """Return the part of the stream that may go out now."""
        ready: list[bytes] = []
        self._num_held += len(piece)
        # An end may lie across the seam, no further back: what was searched once is neither searched nor copied again.
        seam = self._unfinished[-1][-_SEAM_BYTES:] if self._unfinished else b""
        if _EVENT_END.search(seam + piece) is not None:
            self._split(piece, ready)
        elif len(seam) < _SEAM_BYTES:
            self._unfinished = [b"".join([*self._unfinished, piece])]
        elif len(piece) < _SEAM_BYTES:
            self._unfinished[-1] += piece
        else:
            self._unfinished.append(piece)
        if self._num_held > MAX_HELD_BYTES:
            ready.append(self._release())
        return b"".join(ready)

    def finish(self, timing: dict[str, float]) -> bytes:
        """Return the held end of the stream, timing merged into its last JSON event."""
        match = _JSON_EVENT.fullmatch(self._last)
        if match is not None:
            self._last = b"data: " + merge_timing(match.group(1), timing) + b"\n\n"
        return self._release()

    def _split(self, piece: bytes, ready: list[bytes]) -> None:
        num_before = sum(map(len, self._unfinished))
        data = b"".join([*self._unfinished, piece])
        begin = 0
        for match in _EVENT_END.finditer(data, max(num_before - _SEAM_BYTES, 0)):
            self._take(data[begin : match.end()], ready)
            begin = match.end()
        self._unfinished = [data[begin:]] if begin < len(data) else []

    def _take(self, event: bytes, ready: list[bytes]) -> None:
        if _JSON_EVENT.fullmatch(event):
            ready += [self._last, *self._behind]
            self._num_held -= len(event) + sum(map(len, self._behind))
            self._last, self._behind = event, []
        elif self._last:
            self._behind.append(event)
        else:
            ready.append(event)
            self._num_held -= len(event)

    def _release(self) -> bytes:
        held = b"".join([self._last, *self._behind, *self._unfinished])
        self._last, self._behind, self._unfinished, self._num_held = b"", [], [], 0
        return held
