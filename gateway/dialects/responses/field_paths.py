"""FieldPaths: from the fields of a chat completion request to those of the client's Responses request."""

from __future__ import annotations

import re
from typing import Final

from gateway.dialects.own_words import in_own_words, with_own_kinds
from gateway.errors import InvalidRequest

_MESSAGE: Final = re.compile(r"messages\[(\d+)\]")
_CALL: Final = re.compile(r"\.tool_calls\[(\d+)\]")
_PART: Final = re.compile(r"\.content\[(\d+)\]")
_NAMES: Final = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "response_format.json_schema.schema": "text.format.schema",
    "verbosity": "text.verbosity",
}
"""Fields of chat completions that Responses has under another name."""
REFUSED_NAMES: Final = {
    **{name: own for name, own in _NAMES.items() if name.isidentifier()},
    "logprobs": "top_logprobs",
    "functions": "tools",
    "function_call": "tool_choice",
}
"""Names of Responses by those of chat completions, which are refused beside them."""
_KINDS: Final = {"text": "input_text", "image_url": "input_image", "file": "input_file"}
"""Types of content parts by those of chat completions."""
_LIMIT: Final = re.compile(r"\bmax_(?:completion_)?tokens\b")
_TOOL: Final = re.compile(r"^((?:tools|tool_choice)[^.]*)\.(?:function|custom)\b")
_ALLOWED: Final = re.compile(r"^tool_choice\.allowed_tools\b(?:(.*)\.(?:function|custom)\b)?")
_LONGEST_FIRST: Final = sorted(_NAMES, key=len, reverse=True)
_REST: Final = (
    (".function_call", ""),
    (".function", ""),
    (".custom", ""),
    (".tool_call_id", ".call_id"),
    (".image_url.url", ".image_url"),
)
"""Parts of a path that Responses does not have, or has under another name."""


class FieldPaths:
    """Paths of the chat request's messages in the client's request, noted while the messages are made."""

    __slots__ = ("_calls", "_messages")

    def __init__(self) -> None:
        self._messages: list[tuple[str, str]] = []
        self._calls: dict[tuple[int, int], str] = {}

    def add_message(self, item: str, content: str) -> None:
        """Note the next message: the path of the item that it comes from, and that of its content."""
        self._messages.append((item, content))

    def add_call(self, message: int, call: int, item: str) -> None:
        """Note the path of the item behind a tool call of a message."""
        self._calls[message, call] = item

    def of(self, path: str) -> str:
        """Return the client's path of a field of the chat request; unknown ones are returned as they are."""
        found = _MESSAGE.match(path)
        if found is not None and int(found[1]) < len(self._messages):
            return self._in_message(int(found[1]), path[found.end() :])
        for name in _LONGEST_FIRST:
            if path == name or path.startswith((name + ".", name + "[")):
                return _NAMES[name] + path[len(name) :]
        path = _ALLOWED.sub(r"tool_choice\1", path)
        return _TOOL.sub(r"\1", path).replace(".format.grammar", ".format", 1) if path.startswith("tool") else path

    def _in_message(self, message: int, rest: str) -> str:
        item, content = self._messages[message]
        call = _CALL.match(rest)
        if call is not None:
            item = self._calls.get((message, int(call[1])), item)
            rest = rest[call.end() :]
        elif rest == ".content" or _PART.match(rest):
            item, rest = content, rest.removeprefix(".content")
        for own, theirs in _REST:
            rest = rest.replace(own, theirs, 1)
        return item + rest

    def translated(self, error: InvalidRequest) -> InvalidRequest:
        """Return an error about a field of the chat request in the client's words."""
        if error.param is None:
            return error
        message = self.in_own_words(error.message, error.param)
        return InvalidRequest(message, param=self.of(error.param), code=error.code)

    def in_own_words(self, message: str, field: str) -> str:
        """Return a message about a field of the chat request in the client's words."""
        found = in_own_words(with_own_kinds(message, field, _KINDS), field, self.of(field))
        return _LIMIT.sub("max_output_tokens", found)
