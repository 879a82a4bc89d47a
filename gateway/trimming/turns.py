"""Old turns: the first to go when a conversation is too long, in steps so coarse that the rest stays the same."""

from __future__ import annotations

from typing import Final

from gateway.trimming.conversation import Conversation, size_of

STEP_RATIO: Final = 0.8
"""Of what the budget leaves for turns, at most. A cut falls only where a multiple of a step has been said, so for many
turns it falls in the same place, and the prompts of those turns share their beginning."""


def drop_old_turns(conversation: Conversation, budget_bytes: int) -> Conversation:
    """Without as many of the oldest turns as it takes; whole turns, so that no tool call loses its answer.

    Instructions and the last turn stay, whatever the budget.
    """
    turns = conversation.turns()
    sizes = [sum(size_of(conversation.messages[index]) for index in turn) for turn in turns]
    missing = sum(sizes) - budget_bytes
    if missing <= 0 or len(turns) <= 2:
        return conversation
    step = _step(budget_bytes - sizes[0])
    goal = -(-missing // step) * step  # the next step at which enough is gone
    dropped, count = 0, 1
    while count < len(turns) - 1 and dropped < goal:
        dropped += sizes[count]
        count += 1
    kept = [*turns[0], *(index for turn in turns[count:] for index in turn)]
    return Conversation([conversation.messages[index] for index in kept])


def _step(room_bytes: int) -> int:
    """A power of two, or one and a half of it: budgets in bytes drift as tokens are learned, and steps must not."""
    most = max(1, int(room_bytes * STEP_RATIO))
    power = 1 << (most.bit_length() - 1)
    return power * 3 // 2 if power * 3 // 2 <= most else power
