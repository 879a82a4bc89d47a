"""Tools of the Messages API as tools of chat completions; Anthropic's own ones are carried as they are."""

from __future__ import annotations

from typing import Any, Final

from gateway.dialects.messages.native_blocks import placed
from gateway.dialects.messages.schema import MessageToolChoice
from gateway.errors import InvalidRequest

OWN_TOOLS: Final = "anthropic_tools"
"""Member of the document with the tools that only Anthropic's API has, each with its place among all."""
_FUNCTION: Final = frozenset({"type", "name", "description", "input_schema", "strict"})
_OF_FUNCTIONS: Final = (None, "", "custom")
"""Types of tools that the client defines itself."""
_CHOICES: Final[dict[str, str]] = {"auto": "auto", "any": "required", "none": "none"}


def chat_tools(tools: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the tools of functions for a chat document, and those that are carried as they are.

    Raises:
        InvalidRequest: A tool of a function has no schema or no name.
    """
    functions: list[dict[str, Any]] = []
    stored: list[dict[str, Any]] = []
    for index, tool in enumerate(tools):
        if tool.get("type") not in _OF_FUNCTIONS and tool.get("input_schema") is None:
            stored.append(placed(index, tool))
            continue
        for name in ("name", "input_schema"):
            if tool.get(name) in (None, ""):
                raise InvalidRequest(f"`tools[{index}].{name}` is required.", param=f"tools[{index}].{name}")
        function = {"name": tool["name"], "parameters": tool["input_schema"]}
        for name in ("description", "strict"):
            if tool.get(name) is not None:
                function[name] = tool[name]
        rest = {name: value for name, value in tool.items() if name not in _FUNCTION and value is not None}
        functions.append({**rest, "type": "function", "function": function})
    return functions, stored


def chat_tool_choice(choice: MessageToolChoice) -> dict[str, Any]:
    """Return the members of a chat document for a rule on tools; raises InvalidRequest for a tool without a name."""
    found: dict[str, Any] = {}
    if choice.type == "tool":
        if not choice.name:
            raise InvalidRequest('`tool_choice.name` is required with the type "tool".', param="tool_choice.name")
        found["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    else:
        found["tool_choice"] = _CHOICES[choice.type]
    if choice.disable_parallel_tool_use is not None and choice.type != "none":
        found["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    return found
