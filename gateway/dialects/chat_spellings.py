"""Other spellings of an answer's content and arguments, which some servers of chat completions use."""

from __future__ import annotations

from typing import Any

from gateway.chat.json_members import encoded


def content_text(content: Any) -> str:
    """Return the text of a message's content: a string, a part, or a list of parts; other parts have none."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else (content,)
    return "".join([_text_of(part) for part in parts])


def _text_of(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


def arguments_text(arguments: Any) -> str:
    """Return the arguments of a call as JSON text; some servers send the object itself."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else encoded(arguments).decode()


def in_usual_spelling(document: Any) -> Any:
    """Return a decoded event whose deltas have texts where servers may send parts or objects; changes it in place."""
    choices = document.get("choices") if isinstance(document, dict) else None
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(delta, dict):
            continue
        if isinstance(delta.get("content"), list | dict):
            delta["content"] = content_text(delta["content"])
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and "arguments" in function:
                function["arguments"] = arguments_text(function["arguments"])
    return document
