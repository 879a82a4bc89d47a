"""Capping of old tool outputs, which a conversation carries along although the model has read them once."""

from __future__ import annotations

from typing import Final

from gateway.trimming.conversation import Conversation, Message, edited

CAP_BYTES: Final = 2048
"""Bytes that one old tool output keeps, besides the note about the gap."""
_NOTE_BYTES: Final = 64

_OUTPUTS: Final = frozenset({"tool", "function"})


def cap_tool_outputs(conversation: Conversation) -> Conversation:
    """Reduce old tool outputs to their beginning and end; those of the last turn stay whole."""
    messages = list(conversation.messages)
    for index in conversation.old_messages():
        if messages[index]["role"] in _OUTPUTS:
            messages[index] = _capped(messages[index])
    return Conversation(messages)


def _capped(message: Message) -> Message:
    return edited(message, cap_text)


def cap_text(text: str) -> str:
    """Return the first three and the last quarter of CAP_BYTES, with a note that counts the missing characters.

    A text that exceeds the cap by no more than the note's size comes back unchanged.
    """
    if len(text) <= CAP_BYTES // 4:  # a character has at most four bytes
        return text
    data = text.encode()
    if len(data) <= CAP_BYTES + _NOTE_BYTES:
        return text
    head = data[: CAP_BYTES * 3 // 4].decode(errors="ignore")  # a cut character is dropped
    tail = data[-(CAP_BYTES // 4) :].decode(errors="ignore")
    return f"{head}\n[{len(text) - len(head) - len(tail)} characters left out]\n{tail}"
