"""Incremental parser of tool calls whose arguments are JSON. The result does not depend on how the text is split."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Any

import msgspec

from engine.frontend.tools.call_heads import ANY_OBJECT, OBJECT_HEAD, named_head
from engine.frontend.tools.call_scanner import CallScanner, Parsed, num_started
from engine.frontend.tools.tool_format import DEEPSEEK_CALL, DEEPSEEK_CALL_END, MakeId, ToolFormat


class _State(Enum):
    TEXT = "text"
    HEAD = "head"
    """Inside a call, before its arguments."""
    WHOLE = "whole"
    """Inside a call in an unusual form, which is parsed when it is complete."""
    ARGUMENTS = "arguments"
    REST = "rest"
    """After the arguments, before the end of the call's object."""
    BETWEEN = "between"
    """After a call's object."""


_FENCE = "```"


class ToolParser(CallScanner):
    """Parser of one answer. Malformed calls and calls of unknown functions stay text."""

    def __init__(self, form: ToolFormat, names: Collection[str], make_id: MakeId, max_calls: int | None = None) -> None:
        super().__init__(names, make_id, max_calls)
        self._form = form
        self._named_head = named_head(form)
        self._state = _State.HEAD if form.opens_bare else _State.TEXT
        self._is_bare = form.opens_bare
        self._buffer = ""
        """Text received and not parsed yet; in HEAD and WHOLE it starts after the marker."""
        self._consumed = ""
        """Text removed before the buffer, shown again if this is not a call."""
        self._span = _JsonSpan()
        self._is_named = False
        """True if the call's name stands before its arguments instead of around them."""
        self._num_scanned = 0
        """Number of characters of the buffer that the span has scanned, in WHOLE."""

    @property
    def _is_inside_call(self) -> bool:
        return self._state not in (_State.BETWEEN, _State.TEXT)

    def feed(self, text: str) -> Parsed:
        """Parse more of the answer."""
        self._buffer += text
        while not self.is_full and self._step():
            pass
        return self._take()

    def finish(self) -> Parsed:
        """Parse the end of the answer; unparsed text becomes text or a truncated call."""
        if self.is_full:
            self._buffer = ""
        if self._state is _State.BETWEEN:
            self._state = _State.TEXT
        if self._state in (_State.HEAD, _State.WHOLE) and not self._try_whole(self._buffer):
            self._give_up()
        if self._state is _State.TEXT:
            self._show(self._buffer)
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
            case _State.WHOLE:
                return self._in_whole()
            case _State.ARGUMENTS:
                return self._in_arguments()
            case _State.REST:
                return self._in_rest()
            case _State.BETWEEN:
                return self._in_between()

    def _in_text(self) -> bool:
        opening = self._form.opening
        found = self._buffer.find(opening)
        if found < 0:
            num_held = num_started(self._buffer, opening)
            self._show(self._buffer[: len(self._buffer) - num_held])
            self._buffer = self._buffer[len(self._buffer) - num_held :]
            return False
        self._show(self._buffer[:found])
        self._consumed = opening
        self._is_bare = False
        self._buffer = self._buffer[found + len(opening) :]
        self._state = _State.HEAD
        return True

    def _in_head(self) -> bool:
        if self._is_bare and self._skip_bare_opening():
            return True
        named = self._named_head.whole.match(self._buffer) if self._named_head is not None else None
        match = named or OBJECT_HEAD.whole.match(self._buffer)
        name = "" if match is None else match.groupdict().get("fenced") or match["name"]
        if match is not None and name in self._names:
            self._begin(name)
            self._buffer = self._buffer[match.end() - 1 :]
            self._span = _JsonSpan()
            self._is_named = named is not None
            self._state = _State.ARGUMENTS
            return True
        if match is None and self._may_be_head():
            return False
        if match is not None or self._is_bare or not ANY_OBJECT.match(self._buffer):
            self._give_up()
        else:
            self._span = _JsonSpan()
            self._num_scanned = self._buffer.index("{")
            self._state = _State.WHOLE
        return True

    def _may_be_head(self) -> bool:
        heads = (OBJECT_HEAD, self._named_head)
        return any(head is not None and head.beginnings.fullmatch(self._buffer) is not None for head in heads)

    def _skip_bare_opening(self) -> bool:
        """Remove the marker at the start of an answer, if there is one."""
        stripped = self._buffer.lstrip()
        if not stripped.startswith(self._form.opening):
            return False
        self._consumed = self._buffer[: len(self._buffer) - len(stripped)] + self._form.opening
        self._buffer = stripped[len(self._form.opening) :]
        self._is_bare = False
        return True

    def _in_whole(self) -> bool:
        start, self._num_scanned = self._num_scanned, len(self._buffer)
        end = self._span.feed(self._buffer[start:])
        if end is None:
            return False
        if self._try_whole(self._buffer[: start + end]):
            self._buffer = self._buffer[start + end :]
            self._state = _State.BETWEEN
        else:
            self._give_up()
        return True

    def _try_whole(self, text: str) -> bool:
        """Parse a complete object as a call, its members in any order."""
        try:
            value: Any = msgspec.json.decode(text.strip().removeprefix("["))
        except (msgspec.MsgspecError, RecursionError):
            return False
        if not isinstance(value, dict) or not isinstance(value.get("name"), str) or value["name"] not in self._names:
            return False
        arguments = value.get("arguments", value.get("parameters", {}))
        self._begin(value["name"])
        self._add_arguments(arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode())
        return True

    def _in_arguments(self) -> bool:
        end = self._span.feed(self._buffer)
        if end is None:
            self._add_arguments(self._buffer)
            self._buffer = ""
            return False
        self._add_arguments(self._buffer[:end])
        self._buffer = self._buffer[end:]
        self._span = _JsonSpan(depth=1)
        self._state = _State.BETWEEN if self._is_named else _State.REST
        return True

    def _in_rest(self) -> bool:
        end = self._span.feed(self._buffer)
        self._buffer = "" if end is None else self._buffer[end:]
        if end is None:
            return False
        self._state = _State.BETWEEN
        return True

    def _in_between(self) -> bool:
        self._buffer = self._buffer.lstrip()
        if self._form.family in ("deepseek", "deepseek_v31"):
            return self._in_between_deepseek()
        closing = self._form.closing
        if not self._buffer or (closing.startswith(self._buffer) and self._buffer != closing):
            return False
        if closing and self._buffer.startswith(closing):
            self._buffer = self._buffer[len(closing) :]
            self._state = _State.TEXT
        elif self._buffer[0] in ",;" and not closing:
            self._consumed = self._buffer[0]
            self._buffer = self._buffer[1:]
            self._is_bare = False
            self._state = _State.HEAD
        else:
            self._buffer = self._buffer.removeprefix("]") if not closing else self._buffer
            self._state = _State.TEXT
        return True

    def _in_between_deepseek(self) -> bool:
        """Drop the fence and the end of a call; another one may begin before the end of all."""
        markers = (_FENCE, DEEPSEEK_CALL_END, DEEPSEEK_CALL, self._form.closing)
        for marker in markers:
            if not self._buffer.startswith(marker):
                continue
            if marker == DEEPSEEK_CALL:
                self._consumed = ""
                self._state = _State.HEAD
                return True
            self._buffer = self._buffer[len(marker) :]
            if marker == self._form.closing:
                self._state = _State.TEXT
            return True
        if any(marker.startswith(self._buffer) for marker in markers):
            return False
        self._state = _State.TEXT
        return True

    def _give_up(self) -> None:
        """Turn the supposed call back into text."""
        self._show(self._consumed)
        self._consumed = ""
        self._is_bare = False
        self._state = _State.TEXT


class _JsonSpan:
    """Scanner for the end of a JSON object that arrives in pieces."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._in_string = False
        self._is_escaped = False

    def feed(self, text: str) -> int | None:
        """Return the index after the bracket that closes the object; None if it is not in this piece."""
        for index, character in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif self._in_string:
                self._is_escaped = character == "\\"
                self._in_string = character != '"'
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "]}":
                self._depth -= 1
                if not self._depth:
                    return index + 1
        return None
