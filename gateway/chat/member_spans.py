"""MemberSpans: positions of the members of a JSON object in its bytes, to edit a long body without reading it again."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from gateway.chat.json_members import encoded

_TO_NEXT: Final = re.compile(rb"[ \t\n\r]*+,")
_SPACE: Final = b" \t\n\r"


class MemberSpan(NamedTuple):
    """Position of one member and of its value, as offsets into the body."""

    start: int
    value_start: int
    end: int


class _Edit(NamedTuple):
    begin: int
    end: int
    text: bytes


class MemberSpans:
    """Positions of some members of one object; an edit copies the body once and yields the new positions."""

    __slots__ = ("_close", "_found")

    def __init__(self, found: Mapping[str, MemberSpan], close: int) -> None:
        """Take the positions of members, and the offset of the object's closing brace."""
        self._found = found
        self._close = close

    def value_of(self, body: bytes, name: str) -> bytes:
        """Return the JSON text of a member's value."""
        span = self._found[name]
        return body[span.value_start : span.end]

    def edited(
        self, body: bytes, changes: Mapping[str, Any], removed: Collection[str] = ()
    ) -> tuple[bytes, MemberSpans]:
        """Return the object with members set and removed, and their positions there; the rest keeps its bytes.

        Members that are set and have no position are added at the end; they must be absent so far.
        """
        texts = {name: encoded(value) for name, value in changes.items()}
        edits = sorted(
            [
                _Edit(self._found[name].value_start, self._found[name].end, texts[name])
                for name in texts
                if name in self._found
            ]
            + [self._removal(body, self._found[name]) for name in removed if name in self._found]
        )
        pieces: list[bytes | memoryview] = []
        whole, at = memoryview(body), 0
        for edit in edits:
            pieces += [whole[at : edit.begin], edit.text]
            at = edit.end
        pieces.append(whole[at : self._close])
        spans = {
            name: _moved(span, edits, texts.get(name)) for name, span in self._found.items() if name not in removed
        }
        head = b"".join(pieces)
        if removed:  # perhaps the last one, whose comma stands before it
            head = head.rstrip(_SPACE).removesuffix(b",")
        added: list[bytes] = []
        num_bytes = len(head)
        for name in [name for name in texts if name not in self._found]:
            has_others = bool(added) or not head.endswith(b"{", 0, len(head.rstrip(_SPACE)))
            key = b"%b%b:" % (b"," if has_others else b"", encoded(name))
            value_start = num_bytes + len(key)
            spans[name] = MemberSpan(num_bytes + has_others, value_start, value_start + len(texts[name]))
            num_bytes = spans[name].end
            added += [key, texts[name]]
        return b"".join([head, *added, whole[self._close :]]), MemberSpans(spans, num_bytes)

    def _removal(self, body: bytes, span: MemberSpan) -> _Edit:
        """Return the removal of a member with the comma behind it, if there is one."""
        comma = _TO_NEXT.match(body, span.end)
        return _Edit(span.start, span.end if comma is None else comma.end(), b"")


def _moved(span: MemberSpan, edits: list[_Edit], text: bytes | None) -> MemberSpan:
    """Return the position of a member after edits, one of which may have set its value to `text`."""
    moved_by = sum(len(edit.text) - (edit.end - edit.begin) for edit in edits if edit.end <= span.start)
    start, value_start = span.start + moved_by, span.value_start + moved_by
    return MemberSpan(start, value_start, span.end + moved_by if text is None else value_start + len(text))
