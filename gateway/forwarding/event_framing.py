"""WholeEvents: passes a stream on in whole events, so that one that breaks off never leaves half an event behind.

An error event after half an event would be swallowed by it: clients join what stands between two blank lines. A client
can act on an event only when it is whole, so nobody waits longer for anything.
"""

from __future__ import annotations

from typing import Final

from gateway.errors import UpstreamFailed

MAX_HELD_BYTES: Final = 256 * 1024
"""An event larger than this is passed on in parts."""

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
"""No event of an answer is larger: a line that goes on beyond it never ends. As much as a plain answer may have."""

_SEAM_BYTES: Final = 3
EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n")


class WholeEvents:
    """Feed pieces as they come, send what comes back; `rest` is the event that is not whole yet."""

    __slots__ = ("_held", "_num_held", "_num_passed")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._num_held = 0
        self._num_passed = 0  # of an event that is passed on in parts

    @property
    def rest(self) -> bytes:
        """The event that is not whole yet."""
        return b"".join(self._held)

    @rest.setter
    def rest(self, data: bytes) -> None:
        self._held = [data] if data else []
        self._num_held = len(data)

    def feed(self, piece: bytes) -> bytes:
        """All that is whole now. A piece that ends with an event, as most do, is returned as it is. Raises
        UpstreamFailed for an event without an end."""
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
        """Short pieces join the one before, so that the last one always has a whole seam."""
        if len(piece) < _SEAM_BYTES:
            self._held[-1] += piece
        else:
            self._held.append(piece)
        self._num_held += len(piece)
