"""Split of a long last turn, as agents have it: its newest tool calls stay whole, and what precedes them is old."""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.trimming.conversation import MARKUP_BYTES, Conversation, Message, size_of
from gateway.trimming.passages import shortest_bytes

MIN_CYCLES: Final = 4
"""Number of cycles from which a last turn is divided; a shorter one is new as a whole."""
MAX_NEWER_SHARE: Final = 0.65
"""Share of the room up to which the newest cycles stay as they are."""
STEP_SHARE: Final = 0.5
"""Share of the room by which the beginning of the newest cycles moves on.

Until then what precedes them is cut alike in each request, so successive requests share their beginning.
"""
_MIN_ROOM_SHARE: Final = 0.125
_MAX_WHOLE_SHARE: Final = 0.8
"""Share of the room beyond which the last cycle does not stay whole where its passages can be selected."""
_NUM_GRADES: Final = 4
"""Number of sizes that the room of few new cycles may have."""
_ROOM_BITS: Final = 4
"""Leading bits of the room that count: budgets in bytes drift while bytes per token are learned."""
_CYCLES_STEP: Final = 8
"""Cycles by which the beginning of the newest ones moves on where there is no budget."""


class Loop(NamedTuple):
    """A conversation, divided before the newest cycles of its last turn."""

    older: Conversation
    newer: list[Message]
    """The newest cycles, which no strategy changes; empty where the whole last turn is new."""
    older_bytes: int | None
    """Size that what precedes them should fit, now and until their beginning moves on; None without a budget."""


def divided(conversation: Conversation, budget_bytes: int | None, *, has_passages: bool) -> Loop:
    """Return the conversation divided before the newest cycles of a long last turn.

    Args:
        conversation: The messages.
        budget_bytes: Size that the whole conversation should fit; None where there is no budget.
        has_passages: Whether passages of long texts are selected afterwards.
    """
    begins = conversation.cycles()
    whole = Loop(conversation, [], budget_bytes)
    if len(begins) < MIN_CYCLES:
        return whole
    if budget_bytes is None:
        count = (len(begins) - MIN_CYCLES) // _CYCLES_STEP * _CYCLES_STEP
        return _before(conversation, begins[count], None) if count else whole
    fixed = _fixed_bytes(conversation, has_passages=has_passages)
    room = _coarse(max(budget_bytes - fixed, int(budget_bytes * _MIN_ROOM_SHARE), 1))
    sizes = _sizes(conversation, begins)
    most = int(room * MAX_NEWER_SHARE)
    missing = sum(sizes) - most
    if missing <= 0:
        grade = most // _NUM_GRADES + 1
        return _before(conversation, begins[0], fixed + room - -(-sum(sizes) // grade) * grade)
    step = int(room * STEP_SHARE) + 1
    goal, count, older = -(-missing // step) * step, 0, 0
    while count < len(begins) - 1 and older < goal:
        older += sizes[count]
        count += 1
    newer = sum(sizes) - older
    if has_passages and newer > room * _MAX_WHOLE_SHARE:
        return whole
    return _before(conversation, begins[count], fixed + room - max(most, newer))


def _before(conversation: Conversation, begin: int, older_bytes: int | None) -> Loop:
    messages = conversation.messages
    return Loop(Conversation(messages[:begin], has_newer=True), messages[begin:], older_bytes)


def _fixed_bytes(conversation: Conversation, *, has_passages: bool) -> int:
    """Return the size of the instructions and the last user message."""
    messages = conversation.messages
    fixed = [message for index, message in enumerate(messages) if conversation.instructs(index)]
    last = conversation.last_user_message()
    fixed += [messages[last]] if last >= 0 else []
    return sum((shortest_bytes(message) if has_passages else size_of(message)) + MARKUP_BYTES for message in fixed)


def _coarse(room_bytes: int) -> int:
    """Return a room on a coarse grid."""
    return room_bytes - room_bytes % (1 << max(0, room_bytes.bit_length() - _ROOM_BITS))


def _sizes(conversation: Conversation, begins: list[int]) -> list[int]:
    messages = conversation.messages
    ends = [*begins[1:], len(messages)]
    return [
        sum(size_of(message) + MARKUP_BYTES for message in messages[begin:end])
        for begin, end in zip(begins, ends, strict=True)
    ]
