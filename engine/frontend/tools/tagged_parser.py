"""Incremental parser of tool calls whose arguments stand between tags, in the forms of Qwen3-Coder and GLM.

The arguments are sent on as JSON while they arrive: a text as it grows, any other value once it is complete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from engine.frontend.tools.argument_types import argument_schemas, encoded_text, json_as, types_of
from engine.frontend.tools.call_heads import SPACES, named_head
from engine.frontend.tools.call_scanner import CallScanner, Parsed, num_started
from engine.frontend.tools.tool_format import FUNCTION, KEY, MakeId, ToolFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tags:
    """Tags around the arguments of a call."""

    opening: re.Pattern[str]
    """Everything before a value; the group `key` is the argument's name."""
    opening_start: str
    closing: str
    end: str
    """Text behind the last argument, before the end of the call; may be empty."""
    has_padding: bool
    """True if a line break stands before and behind each value."""


_QWEN_CODER: Final = _Tags(
    opening=re.compile(rf"<parameter={SPACES}(?P<key>[^<>]{{1,256}}?)\s*>"),
    opening_start="<parameter=",
    closing="</parameter>",
    end="</function>",
    has_padding=True,
)
_GLM: Final = _Tags(
    opening=re.compile(rf"{KEY}{SPACES}(?P<key>[^<>]{{1,256}}?)\s*</arg_key>{SPACES}<arg_value>"),
    opening_start=KEY,
    closing="</arg_value>",
    end="",
    has_padding=False,
)
_WHOLE_STRINGS: Final = re.compile(r'(?:[^"]++|"(?:[^"\\]|\\.)*+")*+', re.DOTALL)
"""JSON that does not end inside a string."""
_END_OF_STRING: Final = re.compile(rf'(?:[^"\\]|\\.)*+"{_WHOLE_STRINGS.pattern}', re.DOTALL)
"""JSON from inside a string on, which does not end inside one."""
_JSON_START: Final = re.compile(r"\s*[\[{]")
_MAX_OPENING_CHARS: Final = 1024
"""Longest opening of an argument, white space included."""


class _State(Enum):
    TEXT = "text"
    HEAD = "head"
    """Behind the marker, before the function's name is complete."""
    ARGUMENTS = "arguments"
    """Between two arguments."""
    VALUE = "value"


class TaggedCallParser(CallScanner):
    """Parser of one answer. Calls of unknown functions stay text."""

    def __init__(
        self, form: ToolFormat, schemas: Mapping[str, Mapping[str, Any]], make_id: MakeId, max_calls: int | None = None
    ) -> None:
        """Create a parser; `schemas` has the schema of the arguments of each function."""
        super().__init__(schemas, make_id, max_calls)
        head = named_head(form)
        assert head is not None, "these families name the function before its arguments"
        self._form, self._head, self._schemas = form, head, schemas
        self._tags = _QWEN_CODER if form.family == "qwen_coder" else _GLM
        self._openings = (form.opening, FUNCTION) if form.family == "qwen_coder" else (form.opening,)
        """Texts that begin a call; Qwen3-Coder at times leaves out the first tag."""
        self._state = _State.TEXT
        self._buffer = ""
        self._consumed = ""
        """Opening removed before the buffer, shown again if this is not a call."""
        self._arguments: Mapping[str, Any] = {}
        """Schemas of the arguments of the function that is called."""
        self._types: frozenset[str] = frozenset()
        """Types of the argument whose value is read."""
        self._num_arguments = 0
        self._is_closed = False
        """True if the end of the arguments has been sent."""
        self._has_begun = False
        """True if part of the value, which is a text, has been sent."""
        self._inside_at = 0
        """End of the last closing tag that belongs to a string of the value; 0 before the first."""

    @property
    def _is_inside_call(self) -> bool:
        return self._state is not _State.TEXT

    @property
    def _is_text(self) -> bool:
        """True if the value is always a text, which is written without quotes."""
        return self._types == {"string"}

    def feed(self, text: str) -> Parsed:
        """Parse more of the answer."""
        self._buffer += text
        while not self.is_full and self._step():
            pass
        return self._take()

    def finish(self) -> Parsed:
        """Parse the end of the answer; an unfinished head becomes text, an unfinished argument is cut off."""
        if self.is_full:
            self._buffer = ""
        if self._state is _State.HEAD:
            self._give_up()
        if self._state is _State.TEXT:
            self._show(self._buffer)
        elif self._state is _State.VALUE and self._has_begun:
            self._send_text(self._buffer, is_last=False)
        self._buffer = ""
        self._show_last_spaces()
        return self._take()

    def _step(self) -> bool:
        """Make progress; return False when more text is needed."""
        match self._state:
            case _State.TEXT:
                return self._in_text()
            case _State.HEAD:
                return self._in_head()
            case _State.ARGUMENTS:
                return self._in_arguments()
            case _State.VALUE:
                return self._in_value()

    def _in_text(self) -> bool:
        found = [(at, opening) for opening in self._openings if (at := self._buffer.find(opening)) >= 0]
        if not found:
            num_safe = len(self._buffer) - max(num_started(self._buffer, opening) for opening in self._openings)
            self._show(self._buffer[:num_safe])
            self._buffer = self._buffer[num_safe:]
            return False
        at, opening = min(found)
        self._show(self._buffer[:at])
        self._consumed = opening if opening == self._form.opening else ""
        self._buffer = self._buffer[at + len(self._consumed) :]
        self._state = _State.HEAD
        return True

    def _in_head(self) -> bool:
        match = self._head.whole.match(self._buffer)
        if match is None and self._head.beginnings.fullmatch(self._buffer):
            return False
        if match is None or match["name"] not in self._names:
            self._give_up()
            return True
        self._begin(match["name"])
        self._arguments = argument_schemas(self._schemas[match["name"]])
        self._buffer = self._buffer[match.end() :]
        self._num_arguments = 0
        self._is_closed = False
        self._state = _State.ARGUMENTS
        return True

    def _in_arguments(self) -> bool:
        self._buffer = self._buffer.lstrip()
        match = self._tags.opening.match(self._buffer)
        if match is not None:
            self._buffer = self._buffer[match.end() :]
            self._begin_argument(match["key"])
            return True
        for end in filter(None, (self._tags.end, self._form.closing)):
            if self._buffer.startswith(end):
                self._buffer = self._buffer[len(end) :]
                self._close()
                if end == self._form.closing:
                    self._state = _State.TEXT
                return True
        if self._may_continue():
            return False
        self._close()
        self._state = _State.TEXT
        return True

    def _may_continue(self) -> bool:
        """Return whether more text may complete the tag at the start of the buffer."""
        start = self._tags.opening_start
        if self._buffer.startswith(start):
            return len(self._buffer) < _MAX_OPENING_CHARS
        return any(tag.startswith(self._buffer) for tag in (start, self._tags.end, self._form.closing))

    def _begin_argument(self, key: str) -> None:
        self._types = types_of(self._arguments.get(key) or {})
        self._add_arguments(f"{', ' if self._num_arguments else '{'}{encoded_text(key)}: ")
        self._num_arguments += 1
        self._has_begun = False
        self._inside_at = 0
        self._state = _State.VALUE

    def _in_value(self) -> bool:
        closing = self._tags.closing
        found = self._value_end()
        if found >= 0:
            value, self._buffer = self._buffer[:found], self._buffer[found + len(closing) :]
            if self._is_text:
                self._send_text(value, is_last=True)
            else:
                self._add_arguments(json_as(self._unpadded(value), self._types))
            self._state = _State.ARGUMENTS
            return True
        if not self._is_text:
            return False
        num_safe = len(self._buffer) - num_started(self._buffer, closing)
        if self._tags.has_padding and num_safe and self._buffer[num_safe - 1] == "\n":
            num_safe -= 1  # the line break before the closing tag is no part of the value
        if num_safe:
            self._send_text(self._buffer[:num_safe], is_last=False)
            self._buffer = self._buffer[num_safe:]
        return False

    def _value_end(self) -> int:
        """Return the position of the tag that ends the value; -1 where it has not come.

        A tag inside a string of a JSON value is part of it, unless the call goes on behind the tag: then the JSON is
        broken.
        """
        closing = self._tags.closing
        found = self._buffer.find(closing, self._inside_at)
        ends = [tag for tag in (self._tags.opening_start, self._tags.end, self._form.closing) if tag]
        while found >= 0 and not self._is_text and self._is_inside_string(found):
            behind = self._buffer[found + len(closing) :].lstrip()
            if behind.startswith(tuple(ends)):
                break
            if any(tag.startswith(behind) for tag in ends):
                return -1
            self._inside_at = found + len(closing)
            found = self._buffer.find(closing, self._inside_at)
        return found

    def _is_inside_string(self, position: int) -> bool:
        """Return whether a position of the buffer is inside a string of an object or a list, which is the value."""
        if not _JSON_START.match(self._buffer):
            return False
        rest = _END_OF_STRING if self._inside_at else _WHOLE_STRINGS
        return rest.fullmatch(self._buffer, self._inside_at, position) is None

    def _send_text(self, text: str, *, is_last: bool) -> None:
        """Send the next part of a value that is a text."""
        if self._tags.has_padding and not self._has_begun:
            text = text.removeprefix("\n")
        if self._tags.has_padding and is_last:
            text = text.removesuffix("\n")
        quote = "" if self._has_begun else '"'
        self._has_begun = True
        self._add_arguments(quote + encoded_text(text)[1:-1] + ('"' if is_last else ""))

    def _unpadded(self, value: str) -> str:
        return value.removeprefix("\n").removesuffix("\n") if self._tags.has_padding else value

    def _close(self) -> None:
        """End the arguments, once."""
        if not self._is_closed:
            self._add_arguments("}" if self._num_arguments else "{}")
        self._is_closed = True

    def _give_up(self) -> None:
        """Turn the supposed call back into text."""
        shown = self._consumed or FUNCTION
        self._show(shown)
        self._buffer = self._buffer if self._consumed else self._buffer[len(FUNCTION) :]
        self._state = _State.TEXT
