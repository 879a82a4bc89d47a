"""A lower bound on a prompt's tokens, from its bytes alone: enough to refuse what cannot fit anywhere.

The gateway does not tokenise. What is refused here could not fit with any tokenizer in use; all else is for the engine,
which counts exactly.
"""

from __future__ import annotations

from typing import Final

from gateway.chat_fields import Message, TextPart
from gateway.errors import InvalidRequest
from gateway.request import ChatRequest

MAX_BYTES_PER_TOKEN: Final = 128
"""The longest tokens of common vocabularies: runs of spaces in GPT-4's and its relatives'. Text averages 3 to 5."""


def refuse_hopeless(request: ChatRequest, context_tokens: int | None) -> None:
    """Raises InvalidRequest (`context_length_exceeded`) when the prompt is surely longer than `context_tokens`."""
    if context_tokens is None or len(request.raw) <= context_tokens * MAX_BYTES_PER_TOKEN:
        return  # JSON is never shorter than the text in it
    num_tokens = sum(map(_text_bytes, request.messages)) // MAX_BYTES_PER_TOKEN
    if num_tokens > context_tokens:
        raise InvalidRequest(
            f"messages: the prompt is over {num_tokens} tokens long, more than the {context_tokens} that the largest "
            "context here holds. Shorten it.",
            param="messages",
            code="context_length_exceeded",
        )


def _text_bytes(message: Message) -> int:
    content = message.content
    if isinstance(content, str):
        return len(content.encode())
    return sum(len(part.text.encode()) for part in content or () if isinstance(part, TextPart))
