"""Tool outputs: long, read once by the model, and then carried along for ever."""

from __future__ import annotations

from typing import Final

from gateway.trimming.conversation import Conversation, Message, edited

CAP_BYTES: Final = 2048
"""Of one old tool output."""

_OUTPUTS: Final = frozenset({"tool", "function"})


def cap_tool_outputs(conversation: Conversation) -> Conversation:
    """Old tool outputs shortened to their beginning and their end; those of the last turn stay whole."""
    messages = list(conversation.messages)
    for index in conversation.old_messages():
        if messages[index]["role"] in _OUTPUTS:
            messages[index] = _capped(messages[index])
    return Conversation(messages)


def _capped(message: Message) -> Message:
    return edited(message, cap_text)


def cap_text(text: str) -> str:
    """At most about CAP_BYTES characters, cut in the middle, with a note of how much is missing."""
    if len(text) <= CAP_BYTES:
        return text
    head, tail = CAP_BYTES * 3 // 4, CAP_BYTES // 4
    return f"{text[:head]}\n[{len(text) - head - tail} characters left out]\n{text[-tail:]}"
