"""Tools of a chat request: strictly validated definitions, tool choice, and tool calls in the history."""

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
"""Schema of the arguments of a function without `parameters`."""


class FunctionDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Function that the model may call; `parameters` is the JSON schema of an object."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the function's arguments."""
        return self.parameters or NO_PARAMETERS


class Tool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Element of `tools`."""

    type: Literal["function"]
    function: FunctionDefinition

    def as_json(self) -> dict[str, Any]:
        """Return the tool in the form that chat templates render."""
        function: dict[str, Any] = {"name": self.function.name}
        if self.function.description is not None:
            function["description"] = self.function.description
        function["parameters"] = self.function.schema
        return {"type": self.type, "function": function}


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Function of an earlier tool call; `arguments` is JSON as text."""

    name: str
    arguments: str = ""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tool call of an assistant message in the history."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"
    index: int | None = None
    """Position of the call; present in messages assembled from a stream, and ignored."""

    def as_json(self) -> dict[str, Any]:
        """Return the call in the form that chat templates render, with arguments as an object if they are one."""
        return {
            "id": self.id,
            "type": self.type,
            "function": {"name": self.function.name, "arguments": _arguments(self.function.arguments)},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """Tools of a request that may call at least one."""

    tools: tuple[Tool, ...]
    """All tools in the prompt."""
    allowed: tuple[Tool, ...]
    """Tools that the model may call."""
    is_forced: bool
    """True if the answer must be a tool call."""
    may_be_many: bool
    """True if the answer may have several calls."""


def check_tools(tools: Sequence[Tool] | None) -> None:
    """Raise ApiError (400) for wrong or duplicate names, too many tools, or unusable schemas."""
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
    """Resolve `tool_choice` for tools that `check_tools` has accepted.

    Returns:
        The usable tools; None if there are none, or none may be called.

    Raises:
        ApiError: The choice is wrong (400).
    """
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
    except (msgspec.MsgspecError, RecursionError):  # the model's own malformed call is shown to it unchanged
        return text
    return value if isinstance(value, dict) else text
