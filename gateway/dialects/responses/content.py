"""Content of messages: from the parts of Responses to those of chat completions, and back.

Parts of a type that only one side has pass on as they are.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.errors import InvalidRequest

_TEXTS: Final = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_OF_OUTPUT: Final = frozenset({"type", "text", "annotations", "logprobs"})
"""Members of a text part that the model's own texts have; they carry nothing for the next request."""


def chat_content(content: Any, path: str) -> Any:
    """Return the content of an item as that of a message; a single text part is a string.

    Raises:
        InvalidRequest: A part is none.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequest(f"`{path}` must be a string or a list of parts.", param=path)
    parts = [_chat_part(part, f"{path}[{index}]") for index, part in enumerate(content)]
    if len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts


def _chat_part(part: Any, path: str) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise InvalidRequest(f"`{path}` must be an object with a `type`.", param=path)
    kind = part.get("type")
    if not isinstance(kind, str) or not kind:
        raise InvalidRequest(f"`{path}.type` is required.", param=f"{path}.type")
    if kind in _TEXTS:
        text = part.get("text")
        if not isinstance(text, str):
            raise InvalidRequest(f"`{path}.text` must be a string.", param=f"{path}.text")
        rest = {name: value for name, value in part.items() if name not in _OF_OUTPUT and value is not None}
        return {"type": "text", "text": text, **rest}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        return _chat_image(part)
    if kind == "input_file":
        return {"type": "file", "file": {name: value for name, value in part.items() if name != "type" and value}}
    return {name: value for name, value in part.items() if value is not None}


def _chat_image(part: dict[str, Any]) -> dict[str, Any]:
    image = {"url": part["image_url"]}
    if part.get("detail"):
        image["detail"] = part["detail"]
    known = ("type", "image_url", "detail")
    rest = {name: value for name, value in part.items() if name not in known and value is not None}
    return {"type": "image_url", "image_url": image, **rest}


def responses_content(content: Any, *, is_output: bool) -> Any:
    """Return the content of a chat message as that of an item; strings stay strings."""
    if not isinstance(content, list):
        return content
    return [_responses_part(part, "output_text" if is_output else "input_text") for part in content]


def _responses_part(part: Any, text_type: str) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return {**part, "type": text_type}
    if kind == "image_url" and isinstance(part["image_url"], dict):
        image = part["image_url"]
        return {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail") or "auto"}
    if kind == "file" and isinstance(part.get("file"), dict):
        return {"type": "input_file", **part["file"]}
    return part


def item_text(content: Any) -> str:
    """Return the text of an item's content: a string, or the texts of its parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))
