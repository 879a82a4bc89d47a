"""Answers of chat completions as messages of the Messages API."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.chat.json_members import encoded
from gateway.chat.schema import CONTENT_BLOCKS
from gateway.completion.answer_json import document_of
from gateway.dialects.chat_spellings import arguments_text, content_text
from gateway.dialects.messages.native_blocks import OWN_SIGNATURE, Block, blocks_in, restored
from gateway.dialects.messages.stop_reasons import NATIVE_REASON, stop_reason_of
from gateway.dialects.messages.usage import message_usage
from gateway.errors import UpstreamFailed

MESSAGE_MEMBERS: Final = ("container", "context_management", "stop_details", "penstock")
"""Members of an answer that stand in a chat completion as they stand in a message."""
_CHAT_ID: Final = "chatcmpl-"


def message_of(completion: bytes, *, shows_reasoning: bool) -> bytes:
    """Return a whole chat completion as a message.

    Args:
        completion: The completion.
        shows_reasoning: True if the client wants the model's reasoning.

    Raises:
        UpstreamFailed: It is no chat completion.
    """
    document = document_of(completion)
    choices = document.get("choices") if isinstance(document, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if choice is None or not isinstance(message, dict):
        raise UpstreamFailed("The deployment answered with something that is no chat completion. Try again.")
    blocks = _blocks(message, shows_reasoning=shows_reasoning)
    matched = choice.get("stop_reason", choice.get("matched_stop"))
    reason, sequence = stop_reason_of(
        choice.get("finish_reason"),
        choice.get(NATIVE_REASON),
        matched,
        has_call=bool(message.get("tool_calls")),
        has_refusal=bool(message.get("refusal")),
    )
    usage = document.get("usage")
    found = {
        **message_head(document.get("id"), document.get("model")),
        "content": blocks,
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": message_usage(usage if isinstance(usage, dict) else None),
    }
    return encoded(found | {name: document[name] for name in MESSAGE_MEMBERS if document.get(name) is not None})


def message_head(identifier: Any, model: Any) -> dict[str, Any]:
    """Return the first members of a message."""
    name = identifier if isinstance(identifier, str) else ""
    if not name.startswith("msg_"):
        name = "msg_" + name.removeprefix(_CHAT_ID)
    return {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": model if isinstance(model, str) else "",
    }


def _blocks(message: dict[str, Any], *, shows_reasoning: bool) -> list[Block]:
    texts: list[Block] = []
    stored = blocks_in(message.get(CONTENT_BLOCKS))
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str) and shows_reasoning and not any(block.get("type") == "thinking" for block in stored):
        stored = [{"index": -1, "type": "thinking", "thinking": reasoning, "signature": OWN_SIGNATURE}, *stored]
    texts = [
        {"type": "text", "text": text} for name in ("content", "refusal") if (text := content_text(message.get(name)))
    ]
    calls = message.get("tool_calls")
    uses = [tool_use(call, index) for index, call in enumerate(calls)] if isinstance(calls, list) else []
    return restored(texts, uses, stored)


def tool_use(call: Any, index: int) -> Block:
    """Return a tool call of a chat completion as a block."""
    stated = call if isinstance(call, dict) else {}
    function = stated.get("function")
    function = function if isinstance(function, dict) else {}
    identifier = stated.get("id")
    return {
        "type": "tool_use",
        "id": identifier if isinstance(identifier, str) and identifier else f"toolu_{index}",
        "name": function.get("name") or "",
        "input": input_of(function.get("arguments")),
    }


def input_of(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call as an object; what is none stands as text in the member `arguments`."""
    if isinstance(arguments, dict):
        return arguments
    text = arguments_text(arguments)
    if not text.strip():
        return {}
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        found = document_of(text.encode())
    return found if isinstance(found, dict) else {"arguments": text}
