"""Tools of a chat request: strictly validated definitions, tool choice, and tool calls in the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from engine.frontend.fields.faults import unserved_kind, wrong_field
from engine.frontend.fields.table import bounds
from engine.frontend.request.errors import invalid_value, unsupported, wrong_request
from engine.frontend.request.json_schemas import check_schema

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""Schema of the arguments of a function without `parameters`."""


class FunctionDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """Function that the model may call; `parameters` is the JSON schema of an object."""

    name: Annotated[str, bounds("tools[].function.name")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the function's arguments."""
        return self.parameters or NO_PARAMETERS


class Tool(msgspec.Struct, frozen=True, kw_only=True):
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


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True):
    """Function of an earlier tool call; `arguments` is JSON as text."""

    name: str
    arguments: str = ""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
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
    """Raise ApiError (400) for duplicate names or unusable schemas."""
    if tools is None:
        return
    names: set[str] = set()
    for i, tool in enumerate(tools):
        place, name = f"tools[{i}].function", tool.function.name
        if name in names:
            raise invalid_value(f"{place}.name", f"`{place}.name` must be unique; got {name!r} twice.")
        names.add(name)
        if tool.function.parameters is not None:
            check_schema(tool.function.parameters, f"{place}.parameters", is_strict=tool.function.strict is True)
            if tool.function.schema.get("type", "object") != "object":
                where = f"{place}.parameters.type"
                raise invalid_value(where, f"`{where}` must be object: arguments have names.")


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
            raise invalid_value("tool_choice", "`tool_choice` must not be sent without `tools`.")
        return None
    if choice == "none":
        return None
    allowed = tuple(tools)
    mode: object = choice
    if isinstance(choice, dict):
        allowed, mode = _allowed(tools, choice)
    if mode not in (None, "auto", "required"):
        raise wrong_request(wrong_field("tool_choice", choice))
    is_one = isinstance(choice, dict) and choice.get("type") == "function"
    return ToolUse(
        tools=tuple(tools),
        allowed=allowed,
        is_forced=mode == "required",
        may_be_many=may_be_many is not False and not is_one,
    )


def _allowed(tools: Sequence[Tool], choice: dict[str, Any]) -> tuple[tuple[Tool, ...], object]:
    """Return the tools that a choice by name allows, and its mode."""
    kind = choice.get("type")
    if kind == "function":
        return (_named(tools, choice.get("function"), "tool_choice.function"),), "required"
    if kind != "allowed_tools":
        if isinstance(kind, str) and kind:
            raise unsupported(unserved_kind("tool_choice.type", "function", kind))
        raise wrong_request(wrong_field("tool_choice", choice))
    given = choice.get("allowed_tools")
    names = given.get("tools") if isinstance(given, dict) else None
    mode = given.get("mode", "auto") if isinstance(given, dict) else None
    if not isinstance(names, list) or mode not in ("auto", "required"):
        where = "tool_choice.allowed_tools"
        raise invalid_value(where, f'`{where}` must have a list `tools` and a `mode`, "auto" or "required".')
    place = "tool_choice.allowed_tools.tools[{}].function"
    chosen = [
        _named(tools, item.get("function") if isinstance(item, dict) else None, place.format(number))
        for number, item in enumerate(names)
    ]
    return tuple(tool for tool in tools if tool in chosen), mode


def _named(tools: Sequence[Tool], function: object, place: str) -> Tool:
    """Return the tool that a choice names; raises ApiError (400) where there is none."""
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise invalid_value(f"{place}.name", f"`{place}.name` is required.")
    for tool in tools:
        if tool.function.name == name:
            return tool
    raise invalid_value(f"{place}.name", f"`{place}.name` must be the name of one of the tools; got {name[:64]!r}.")


def _arguments(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):  # the model's own malformed call is shown to it unchanged
        return text
    return value if isinstance(value, dict) else text
