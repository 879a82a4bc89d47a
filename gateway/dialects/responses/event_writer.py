"""EventWriter: the events of one response as server-sent events, numbered in order."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.chat.json_members import encoded

_encode_text: Final = msgspec.json.Encoder().encode


class DeltaForm:
    """The bytes of one item's deltas around their number and text, which are all that differs between them."""

    __slots__ = ("head", "tail")

    def __init__(self, kind: str, **members: Any) -> None:
        name = kind.encode()
        self.head = b'event: %b\ndata: {"type":"%b","sequence_number":' % (name, name)
        self.tail = b",%b\n\n" % encoded(members)[1:]


class EventWriter:
    """Writer of events: write, then take what was written."""

    __slots__ = ("_next", "_written")

    def __init__(self) -> None:
        self._next = 0
        self._written: list[bytes] = []

    def write(self, kind: str, members: dict[str, Any]) -> None:
        """Write an event of a kind such as `response.created`."""
        data = encoded({"type": kind, "sequence_number": self._next, **members})
        self._written.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))
        self._next += 1

    def write_delta(self, form: DeltaForm, text: str) -> None:
        """Write a piece of text."""
        self._written.append(b'%b%d,"delta":%b%b' % (form.head, self._next, _encode_text(text), form.tail))
        self._next += 1

    def take(self) -> bytes:
        """Return what was written since the last call."""
        written = self._written
        if len(written) == 1:
            return written.pop()
        self._written = []
        return b"".join(written)
