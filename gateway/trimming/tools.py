"""Capping of old tool outputs, which a conversation carries along although the model has read them once."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from gateway.trimming.conversation import Conversation, Message, edited
from gateway.trimming.structure.layout import layout_of
from gateway.trimming.structure.segment import TextSegment, num_bytes_of

CAP_BYTES: Final = 2048
"""Bytes that one old tool output keeps, besides the marks of gaps."""
MAX_CAPPED_BYTES: Final = CAP_BYTES + 64
"""Size up to which an output is not cut."""
_HEAD_SHARE: Final = 0.75
_OUTPUTS: Final = frozenset({"tool", "function"})


def cap_tool_outputs(conversation: Conversation, spared: Set[int] = frozenset()) -> Conversation:
    """Reduce old tool outputs to their beginning and end; those of the last turn, and those spared, stay whole."""
    messages = list(conversation.messages)
    for index in conversation.old_messages():
        if is_output(messages[index]) and index not in spared:
            messages[index] = edited(messages[index], cap_text)
    return conversation.of(messages)


def is_output(message: Message) -> bool:
    """Return whether the message holds a tool's output."""
    return message["role"] in _OUTPUTS


def cap_text(text: str) -> str:
    """Return the first three and the last quarter of CAP_BYTES, cut where JSON, code, rows and sentences end.

    A text that exceeds the cap by little comes back unchanged.
    """
    if len(text) <= CAP_BYTES // 4 or num_bytes_of(text) <= MAX_CAPPED_BYTES:  # a character has at most four
        return text
    layout = layout_of(text, CAP_BYTES)
    segments = [*layout.segments()]
    left = _retain(segments, int(CAP_BYTES * _HEAD_SHARE))
    if not layout.is_retained:
        return text
    _retain(segments[::-1], CAP_BYTES - int(CAP_BYTES * _HEAD_SHARE) + left)
    return layout.rendered().rstrip()


def _retain(segments: list[TextSegment], room_bytes: int) -> int:
    """Retain segments from the first on, until one does not fit; return the bytes left."""
    for segment in segments:
        cost = segment.cost_bytes
        if segment.is_retained or cost > room_bytes:
            break
        segment.retain()
        room_bytes -= cost
    return room_bytes
