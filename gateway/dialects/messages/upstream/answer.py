"""Messages of Anthropic's API as chat completions."""

from __future__ import annotations

import time
from typing import Any, Final

from gateway.chat.json_members import encoded
from gateway.chat.schema import CONTENT_BLOCKS
from gateway.completion.answer_json import document_of
from gateway.dialects.messages.answer import MESSAGE_MEMBERS
from gateway.dialects.messages.native_blocks import Block, native_of_answer
from gateway.dialects.messages.stop_reasons import choice_end
from gateway.dialects.messages.usage import chat_usage
from gateway.errors import UpstreamFailed

_TOO_LONG: Final = "prompt is too long"
_NO_MESSAGE: Final = "The deployment answered with something that is no message. Try again."
_CODES: Final = {
    "authentication_error": "invalid_api_key",
    "not_found_error": "model_not_found",
    "request_too_large": "request_too_large",
    "rate_limit_error": "rate_limit_exceeded",
    "overloaded_error": "server_is_overloaded",
}


def completion_of(body: bytes) -> bytes:
    """Return a whole message as a chat completion; an error stays one. Raises UpstreamFailed if it is neither."""
    document = document_of(body)
    if isinstance(document, dict) and isinstance(document.get("error"), dict):
        return encoded({"error": chat_error(document["error"])})
    blocks = document.get("content") if isinstance(document, dict) else None
    if not isinstance(blocks, list):
        raise UpstreamFailed(_NO_MESSAGE)
    try:
        message = _message(blocks)
    except (AttributeError, TypeError):
        raise UpstreamFailed(_NO_MESSAGE) from None
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        **choice_end(document.get("stop_reason"), document.get("stop_sequence")),
    }
    found = {**completion_head(document, "chat.completion"), "choices": [choice]}
    if isinstance(document.get("usage"), dict) and (usage := chat_usage(document["usage"])) is not None:
        found["usage"] = usage
    return encoded(found | {name: document[name] for name in MESSAGE_MEMBERS if document.get(name) is not None})


def completion_head(message: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the first members of a completion, or of an event of one."""
    identifier, model = message.get("id"), message.get("model")
    return {
        "id": identifier if isinstance(identifier, str) else "",
        "object": kind,
        "created": int(time.time()),
        "model": model if isinstance(model, str) else "",
    }


def _message(blocks: list[Block]) -> dict[str, Any]:
    texts = [block.get("text", "") for block in blocks if block.get("type") == "text"]
    reasonings = [block.get("thinking", "") for block in blocks if block.get("type") == "thinking"]
    calls = [call_of(block) for block in blocks if block.get("type") == "tool_use"]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts else None}
    if reasonings:
        message["reasoning_content"] = "\n\n".join(reasonings)
    if calls:
        message["tool_calls"] = calls
    if stored := native_of_answer(blocks):
        message[CONTENT_BLOCKS] = stored
    if message["content"] is None and not calls:
        message["content"] = ""
    return message


def call_of(block: Block) -> dict[str, Any]:
    """Return a tool call as one of a chat completion."""
    arguments = encoded(block.get("input") or {}).decode()
    return {
        "id": block.get("id", ""),
        "type": "function",
        "function": {"name": block.get("name", ""), "arguments": arguments},
    }


def chat_error(error: dict[str, Any]) -> dict[str, Any]:
    """Return the inside of an error envelope with the keys of chat completions."""
    kind, message = error.get("type"), error.get("message")
    message = message if isinstance(message, str) else "The deployment refused the request."
    code = "context_length_exceeded" if _TOO_LONG in message else _CODES.get(kind) if isinstance(kind, str) else None
    return {"message": message, "type": kind, "param": None, "code": code}


def chat_envelope(body: bytes) -> bytes:
    """Return an error of the Messages API in the envelope of chat completions; other bodies stay as they are."""
    document = document_of(body)
    error = document.get("error") if isinstance(document, dict) else None
    return encoded({"error": chat_error(error)}) if isinstance(error, dict) else body
