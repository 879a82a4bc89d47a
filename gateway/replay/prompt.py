"""The prompt of a replay that takes another one: a system prompt, or the messages of a chat request."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.errors import InvalidRequest

_NO_MATTER = frozenset({"model", "stream", "stream_options", "logprobs", "top_logprobs"})
"""Members that do not change the text of an answer; `n`, limits and the seed do."""
_INSTRUCTIONS = ("system", "developer")


def are_alike(one: ChatRequest, other: ChatRequest) -> bool:
    """Return whether a model would get the same of both requests."""
    return _of_matter(one) == _of_matter(other)


def _of_matter(request: ChatRequest) -> dict[str, Any]:
    return {name: value for name, value in request.document.items() if name not in _NO_MATTER}


def with_prompt(request: ChatRequest, prompt: str) -> ChatRequest:
    """Return the request with another prompt.

    Args:
        request: The request.
        prompt: A JSON object with `messages`, which replace all of the request's; else the text of a system prompt. It
            replaces the first instructions, or comes before all messages.

    Raises:
        InvalidRequest: The messages are not valid.
    """
    messages = _messages_in(prompt)
    if messages is not None:
        checked = ChatRequestParser().accept({"model": request.model, "messages": messages})
        return request.with_messages(checked.document["messages"])
    rest = list(request.document["messages"])
    at = next((i for i, message in enumerate(rest) if message.get("role") in _INSTRUCTIONS), None)
    if at is None:
        return request.with_messages([{"role": "system", "content": prompt}, *rest])
    rest[at] = {**rest[at], "content": prompt}
    return request.with_messages(rest)


def _messages_in(prompt: str) -> list[Any] | None:
    try:
        found = msgspec.json.decode(prompt)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(found, dict) or "messages" not in found:
        return None
    if not isinstance(found["messages"], list):
        raise InvalidRequest("messages: expected a list of messages.", param="prompt")
    return found["messages"]
