"""Old turns: the first to go when a conversation is too long, in steps so coarse that the rest stays the same."""

from __future__ import annotations

from typing import Final

from gateway.trimming.conversation import Conversation, size_of

STEP_RATIO: Final = 0.8
"""Of what the budget leaves for turns, at most. A cut falls only where a multiple of a step has been said, so for many
turns it falls in the same place, and the prompts of those turns share their beginning."""


def recent_turns(conversation: Conversation, budget_bytes: int) -> list[int]:
    """Indexes of what stays when as many of the oldest turns go as it takes; whole turns, so that no tool call loses
    its answer.

    Instructions, wherever they stand, and the last turn stay, whatever the budget.
    """
    turns = conversation.turns()
    sizes = [sum(_sizes(conversation, turn)) for turn in turns]
    missing = conversation.num_bytes - budget_bytes
    everything = range(len(conversation.messages))
    if missing <= 0 or len(turns) <= 2:
        return [*everything]
    step = _step(sum(sizes) - missing)
    goal = -(-missing // step) * step  # the next step at which enough is gone
    dropped, count = 0, 1
    while count < len(turns) - 1 and dropped < goal:
        dropped += sizes[count]
        count += 1
    return from_turn(conversation, turns[count])


def from_turn(conversation: Conversation, turn: range) -> list[int]:
    """Indexes of what stays when every turn before this one goes."""
    indexes = range(len(conversation.messages))
    return [index for index in indexes if index >= turn.start or conversation.instructs(index)]


def _sizes(conversation: Conversation, turn: range) -> list[int]:
    """Of the messages that may go."""
    return [size_of(conversation.messages[index]) for index in turn if not conversation.instructs(index)]


def _step(room_bytes: int) -> int:
    """A power of two, or one and a half of it: budgets in bytes drift as tokens are learned, and steps must not."""
    most = max(1, int(room_bytes * STEP_RATIO))
    power = 1 << (most.bit_length() - 1)
    return power * 3 // 2 if power * 3 // 2 <= most else power
