"""Tools and their choice: from the form of Responses to that of chat completions, and back.

Functions and custom tools exist in both. Tools of any other type, such as hosted ones, pass on as they are.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.errors import InvalidRequest

_WRAPPED: Final = ("function", "custom")
"""Types of tools that chat completions wrap into an object under the name of the type."""


def tools_as_chat(tools: list[Any]) -> list[Any]:
    """Return tools of a Responses request as those of a chat request."""
    return [_chat_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]


def _chat_tool(tool: Any, path: str) -> Any:
    kind = _type_of(tool, path)
    if kind not in _WRAPPED:
        return tool
    if kind in tool:  # already in the form of chat completions, which some clients send
        return tool
    inner = {name: value for name, value in tool.items() if name != "type" and value is not None}
    if kind == "custom" and isinstance(inner.get("format"), dict) and inner["format"].get("type") == "grammar":
        grammar = {name: value for name, value in inner["format"].items() if name != "type"}
        inner["format"] = {"type": "grammar", "grammar": grammar}
    return {"type": kind, kind: inner}


def choice_as_chat(choice: Any) -> Any:
    """Return the tool choice of a Responses request as that of a chat request."""
    if not isinstance(choice, dict):
        return choice
    kind = _type_of(choice, "tool_choice")
    if kind in _WRAPPED and kind not in choice:
        return {"type": kind, kind: {name: value for name, value in choice.items() if name != "type"}}
    if kind == "allowed_tools" and isinstance(choice.get("tools"), list):
        tools = [_chat_tool(tool, f"tool_choice.tools[{index}]") for index, tool in enumerate(choice["tools"])]
        return {"type": kind, kind: {"mode": choice.get("mode") or "auto", "tools": tools}}
    return choice


def responses_tools(tools: list[Any]) -> list[Any]:
    """Return tools of a chat request as those of a Responses request."""
    return [_responses_tool(tool) for tool in tools]


def _responses_tool(tool: Any) -> Any:
    kind = tool.get("type") if isinstance(tool, dict) else None
    inner = tool.get(kind) if kind in _WRAPPED else None
    if not isinstance(inner, dict):
        return tool
    rest = {name: value for name, value in inner.items() if value is not None}
    form = rest.get("format")
    if kind == "custom" and isinstance(form, dict) and isinstance(form.get("grammar"), dict):
        rest["format"] = {"type": "grammar", **form["grammar"]}
    if kind == "function":  # both are required, and functions of chat completions are not strict by themselves
        rest = {"parameters": None, "strict": False, **rest}
    return {"type": kind, **rest}


def responses_tool_choice(choice: Any) -> Any:
    """Return the tool choice of a chat request as that of a Responses request."""
    if not isinstance(choice, dict):
        return choice
    kind = choice.get("type")
    inner = choice.get(kind) if isinstance(kind, str) else None
    if not isinstance(inner, dict):
        return choice
    if kind == "allowed_tools":
        stated = inner.get("tools")
        tools = [_named(tool) for tool in stated] if isinstance(stated, list) else []
        return {"type": kind, "mode": inner.get("mode", "auto"), "tools": tools}
    return {"type": kind, **inner} if kind in _WRAPPED else choice


def _named(tool: Any) -> Any:
    """Return a tool of a choice, which holds its name alone."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    inner = tool.get(kind) if kind in _WRAPPED else None
    return {"type": kind, "name": inner.get("name")} if isinstance(inner, dict) else tool


def _type_of(value: Any, path: str) -> str:
    """Return the type of an object that must have one.

    Raises:
        InvalidRequest: It has none.
    """
    if not isinstance(value, dict):
        raise InvalidRequest(f"`{path}` must be an object.", param=path)
    kind = value.get("type")
    if not isinstance(kind, str) or not kind:
        raise InvalidRequest(f"`{path}.type` is required.", param=f"{path}.type")
    return kind
