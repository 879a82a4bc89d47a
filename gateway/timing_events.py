"""TimingEvents: holds back the end of a stream so that its last event can carry the request's timing."""

from __future__ import annotations

import re
from typing import Final

from gateway.stream_tail import merge_timing

MAX_HELD_BYTES: Final = 256 * 1024

_EVENT_END: Final = re.compile(rb"\r?\n\r?\n|\r\r")
_JSON_EVENT: Final = re.compile(rb"data: ?(\{.*\})[\r\n]*", re.DOTALL)


class TimingEvents:
    """Feed the stream, send what comes back; `finish` gives the rest. Used only when the client asked for timing.

    Held are the last JSON event, what followed it (`[DONE]`, comments), and the unfinished event behind that.
    """

    __slots__ = ("_behind", "_last", "_unfinished")

    def __init__(self) -> None:
        self._last = b""
        self._behind = b""
        self._unfinished = b""

    def feed(self, piece: bytes) -> bytes:
        """What may go out now."""
        data = self._unfinished + piece
        ready: list[bytes] = []
        begin = 0
        # An end may lie across the seam, no further back: what was searched once is not searched again.
        for match in _EVENT_END.finditer(data, max(len(self._unfinished) - 3, 0)):
            self._take(data[begin : match.end()], ready)
            begin = match.end()
        self._unfinished = data[begin:]
        if len(self._unfinished) + len(self._behind) > MAX_HELD_BYTES:
            ready.append(self._release())
        return b"".join(ready)

    def finish(self, timing: dict[str, float]) -> bytes:
        """The held end of the stream, timing merged into its last JSON event."""
        match = _JSON_EVENT.fullmatch(self._last)
        if match is not None:
            self._last = b"data: " + merge_timing(match.group(1), timing) + b"\n\n"
        return self._release()

    def _take(self, event: bytes, ready: list[bytes]) -> None:
        if _JSON_EVENT.fullmatch(event):
            ready.append(self._last + self._behind)
            self._last, self._behind = event, b""
        elif self._last:
            self._behind += event
        else:
            ready.append(event)

    def _release(self) -> bytes:
        held = self._last + self._behind + self._unfinished
        self._last = self._behind = self._unfinished = b""
        return held
