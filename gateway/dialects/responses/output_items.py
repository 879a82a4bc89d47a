"""Output items: the values of a response's output."""

from __future__ import annotations

from typing import Any


def text_part(text: str, annotations: list[Any] | None = None, logprobs: list[Any] | None = None) -> dict[str, Any]:
    """Return a part of text."""
    return {"type": "output_text", "annotations": annotations or [], "logprobs": logprobs or [], "text": text}


def refusal_part(refusal: str) -> dict[str, Any]:
    """Return a part in which the model refuses."""
    return {"type": "refusal", "refusal": refusal}


def message_item(item_id: str, content: list[Any], status: str = "completed") -> dict[str, Any]:
    """Return a message of the model."""
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": content}


def reasoning_item(item_id: str, text: str, status: str = "completed") -> dict[str, Any]:
    """Return reasoning in plain text."""
    content = [{"type": "reasoning_text", "text": text}] if text else []
    return {"id": item_id, "type": "reasoning", "status": status, "summary": [], "content": content}


def call_item(item_id: str, call_id: str, name: str, arguments: str, status: str = "completed") -> dict[str, Any]:
    """Return a call of a function."""
    return {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "arguments": arguments,
        "call_id": call_id,
        "name": name,
    }


def custom_call_item(item_id: str, call_id: str, name: str, text: str, status: str = "completed") -> dict[str, Any]:
    """Return a call of a custom tool, whose input is text."""
    return {
        "id": item_id,
        "type": "custom_tool_call",
        "status": status,
        "call_id": call_id,
        "name": name,
        "input": text,
    }


def responses_annotations(annotations: Any) -> list[Any]:
    """Return the annotations of a chat message in the form of Responses: without the object inside."""
    found = []
    for annotation in annotations if isinstance(annotations, list) else ():
        kind = annotation.get("type") if isinstance(annotation, dict) else None
        inner = annotation.get(kind) if isinstance(kind, str) else None
        found.append({"type": kind, **inner} if isinstance(inner, dict) else annotation)
    return found


def responses_logprobs(logprobs: Any) -> list[Any]:
    """Return the log probabilities of a chat choice as a list of tokens."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return content if isinstance(content, list) else []


def latest_items(entries: Any) -> list[dict[str, Any]]:
    """Return the entries of `output_items`; of several with one id, the last value at the first place."""
    found: dict[object, dict[str, Any]] = {}
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict) and isinstance(entry.get("item"), dict):
            stated, at = entry["item"].get("id"), entry.get("at")
            name = stated if isinstance(stated, str) and stated else number
            found[name] = {
                **entry,
                "at": found[name]["at"] if name in found else at if type(at) is int and at > 0 else 0,
            }
    return list(found.values())
