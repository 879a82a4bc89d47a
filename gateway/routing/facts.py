"""RequestFacts: the facts of a request for a route's condition, computed on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.chat.request import ChatRequest
from gateway.chat.schema import ChatTextPart, ImagePart, UserMessage
from routing_policies.conditions.condition import MAX_TEXT_CHARS

Fact = str | int | bool


class RequestFacts:
    """The `Facts` of a chat request."""

    __slots__ = ("_request",)

    def __init__(self, request: ChatRequest) -> None:
        self._request = request

    def fact(self, name: str) -> Fact:
        """Return the value of `request.NAME`."""
        return _FACTS[name](self._request)


def _turns(request: ChatRequest) -> int:
    return sum(isinstance(message, UserMessage) for message in request.messages)


def _has_images(request: ChatRequest) -> bool:
    return any(
        isinstance(part, ImagePart)
        for message in request.messages
        if isinstance(message.content, list)
        for part in message.content
    )


def _text(request: ChatRequest) -> str:
    """Return the beginning of the last user text."""
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            content = message.content
            if isinstance(content, str):
                return content[:MAX_TEXT_CHARS]
            return "\n".join(part.text for part in content if isinstance(part, ChatTextPart))[:MAX_TEXT_CHARS]
    return ""


_FACTS: Final[dict[str, Callable[[ChatRequest], Fact]]] = {
    "model": lambda request: request.model,
    "turns": _turns,
    "prompt_bytes": lambda request: request.text_bytes,
    "has_tools": lambda request: bool(request.fields.tools),
    "has_images": _has_images,
    "stream": lambda request: request.stream,
    "text": _text,
}
