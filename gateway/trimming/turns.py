"""Removal of old turns in coarse steps, so the remaining prompt keeps its beginning over many turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Final

from gateway.trimming.conversation import MARKUP_BYTES, Conversation, Message, size_of

STEP_RATIO: Final = 0.8
"""Largest step as a share of the room that the budget leaves for turns.

Cuts fall only at multiples of a step. For many turns the cut therefore stays in one place, and their prompts share a
prefix.
"""


def recent_turns(
    conversation: Conversation,
    budget_bytes: int,
    *,
    size: Callable[[Message], int] = size_of,
    retained: Set[int] = frozenset(),
) -> list[int]:
    """Return the indexes of the messages that stay when the oldest turns are dropped to fit the budget.

    Only whole turns go, so no tool call loses its output. Instructions and the last turn stay, whatever the budget.

    Args:
        conversation: The messages.
        budget_bytes: Size to fit, in bytes.
        size: Returns the bytes that a message counts for.
        retained: Turns that stay although they are old, by the index of their first message.
    """
    messages, turns = conversation.messages, conversation.turns()
    fixed = conversation.fixed_messages()
    sizes = [
        0 if turn.start in retained else sum(_sizes(messages, turn, size, fixed)) for turn in turns
    ]  # what stays anyway is no part of a step
    missing = sum(map(size, messages)) + MARKUP_BYTES * len(messages) - budget_bytes
    if missing <= 0 or len(turns) <= 2:
        return [*range(len(messages))]
    # What precedes newer messages is the same in many requests, and needs no coarse step.
    step = 1 if conversation.has_newer else _step(sum(sizes) - missing)
    goal = -(-missing // step) * step  # the first multiple of a step that is enough
    dropped, count = 0, 1
    while count < len(turns) - 1 and dropped < goal:
        dropped += sizes[count]
        count += 1
    stays = {index for turn in turns[1:count] if turn.start in retained for index in turn}
    return from_turn(conversation, turns[count], stays)


def from_turn(conversation: Conversation, turn: range, retained: Set[int] = frozenset()) -> list[int]:
    """Return the indexes of the messages that stay when every turn before `turn` is dropped, but for `retained`."""
    stays = retained | conversation.fixed_messages()
    return [index for index in range(len(conversation.messages)) if index >= turn.start or index in stays]


def _sizes(messages: Sequence[Message], turn: range, size: Callable[[Message], int], fixed: Set[int]) -> list[int]:
    """Return the sizes in bytes of the turn's messages that may be dropped, markup included."""
    return [size(messages[index]) + MARKUP_BYTES for index in turn if index not in fixed]


def _step(room_bytes: int) -> int:
    """Return the step in bytes: a power of two, or one and a half times one.

    Budgets in bytes drift while bytes per token are learned; a coarse grid keeps the step constant.
    """
    most = max(1, int(room_bytes * STEP_RATIO))
    power = 1 << (most.bit_length() - 1)
    return power * 3 // 2 if power * 3 // 2 <= most else power
