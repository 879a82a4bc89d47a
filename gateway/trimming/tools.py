"""Tool outputs: long, read once by the model, and then carried along for ever."""

from __future__ import annotations

from typing import Final

from gateway.trimming.conversation import Conversation, Message, edited

CAP_BYTES: Final = 2048
"""Of one old tool output, besides the note."""
_NOTE_BYTES: Final = 64

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
    """CAP_BYTES of its beginning and its end, with a note of how much is missing; a little more is not worth a cut."""
    if len(text) <= CAP_BYTES // 4:  # four bytes a character are the most
        return text
    data = text.encode()
    if len(data) <= CAP_BYTES + _NOTE_BYTES:
        return text
    head = data[: CAP_BYTES * 3 // 4].decode(errors="ignore")  # half a character is left out
    tail = data[-(CAP_BYTES // 4) :].decode(errors="ignore")
    return f"{head}\n[{len(text) - len(head) - len(tail)} characters left out]\n{tail}"
