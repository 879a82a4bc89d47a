"""Tools of a chat request: their definitions, the choice among them, and calls in the history. Validated strictly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from engine.frontend.request.errors import invalid_value, unsupported
from engine.frontend.request.json_schemas import check_schema

MAX_TOOLS = 128
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""What a function without `parameters` takes."""


class FunctionDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A function the model may call; `parameters` is a JSON schema of an object."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """What its arguments must be."""
        return self.parameters or NO_PARAMETERS


class Tool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A member of `tools`."""

    type: Literal["function"]
    function: FunctionDefinition

    def as_json(self) -> dict[str, Any]:
        """The form that chat templates render."""
        function: dict[str, Any] = {"name": self.function.name}
        if self.function.description is not None:
            function["description"] = self.function.description
        function["parameters"] = self.function.schema
        return {"type": self.type, "function": function}


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model asked to be called earlier; `arguments` is JSON as text."""

    name: str
    arguments: str = ""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of an assistant message in the history."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"
    index: int | None = None
    """Left over in messages put together from a stream."""

    def as_json(self) -> dict[str, Any]:
        """The form that chat templates render: arguments as an object when they are one."""
        return {
            "id": self.id,
            "type": self.type,
            "function": {"name": self.function.name, "arguments": _arguments(self.function.arguments)},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """What of the tools a request may or must use; made for requests in which a call is possible."""

    tools: tuple[Tool, ...]
    """All that the prompt shows."""
    allowed: tuple[Tool, ...]
    """Those that may be called."""
    is_forced: bool
    """Whether the answer is a call, not text."""
    may_be_many: bool
    """Whether there may be several calls."""


def check_tools(tools: Sequence[Tool] | None) -> None:
    """Raise ApiError (400) for wrong names, two of one name, too many, and schemas that will not be compiled."""
    if tools is None:
        return
    if len(tools) > MAX_TOOLS:
        raise invalid_value("tools", f"tools: {len(tools)} tools exceed the limit of {MAX_TOOLS}.")
    names: set[str] = set()
    for i, tool in enumerate(tools):
        place, name = f"tools[{i}].function", tool.function.name
        if not _NAME.fullmatch(name):
            message = f"{place}.name: expected 1 to 64 letters, digits, underscores or hyphens."
            raise invalid_value(f"{place}.name", message)
        if name in names:
            raise invalid_value(f"{place}.name", f"{place}.name: {name!r} is defined twice.")
        names.add(name)
        if tool.function.parameters is not None:
            check_schema(tool.function.parameters, f"{place}.parameters")
            if tool.function.schema.get("type", "object") != "object":
                where = f"{place}.parameters.type"
                raise invalid_value(where, f"{where}: expected object: arguments have names.")


def choose_tools(
    tools: Sequence[Tool] | None, choice: str | dict[str, Any] | None, may_be_many: bool | None
) -> ToolUse | None:
    """What checked tools come to; None: there are none, or none may be called. Raises ApiError (400) on the choice."""
    if not tools:
        if choice not in (None, "none", "auto"):
            raise invalid_value("tool_choice", "tool_choice: only allowed together with tools.")
        return None
    if choice == "none":
        return None
    allowed = tuple(tools)
    if isinstance(choice, dict):
        allowed = (_named(tools, choice),)
    elif choice not in (None, "auto", "required"):
        expected = "none, auto, required or an object that names a function"
        raise invalid_value("tool_choice", f"tool_choice: expected {expected}.")
    return ToolUse(
        tools=tuple(tools),
        allowed=allowed,
        is_forced=choice not in (None, "auto"),
        may_be_many=may_be_many is not False and not isinstance(choice, dict),
    )


def _named(tools: Sequence[Tool], choice: dict[str, Any]) -> Tool:
    if choice.get("type") in ("allowed_tools", "custom"):
        raise unsupported("tool_choice", f"tool_choice: type {choice['type']!r} is not served.")
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if choice.keys() != {"type", "function"} or choice["type"] != "function" or not isinstance(name, str):
        expected = '{"type": "function", "function": {"name": ...}}'
        raise invalid_value("tool_choice", f"tool_choice: expected {expected}.")
    for tool in tools:
        if tool.function.name == name:
            return tool
    raise invalid_value("tool_choice", f"tool_choice: no tool is named {name[:64]!r}.")


def _arguments(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):  # a model's own broken call, shown to it as it was
        return text
    return value if isinstance(value, dict) else text
