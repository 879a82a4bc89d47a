"""Trimmer: a route's strategies in the order that loses least, until the prompt fits its budget."""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from gateway.chat.request import ChatRequest
from gateway.trimming.conversation import Conversation
from gateway.trimming.dedupe import dedupe
from gateway.trimming.minify import minify
from gateway.trimming.passages import extract_passages
from gateway.trimming.tools import cap_tool_outputs
from gateway.trimming.turns import from_turn, recent_turns
from routing_policies.policy.document import Trim, TrimStrategy

DEFAULT_BYTES_PER_TOKEN: Final = 4.0
MORE_RATIO: Final = 0.5
"""Of the budget, or of the prompt where there is none, for a prompt that would otherwise come too late."""

MAX_TRIMMED_HERE_BYTES: Final = 4 * 1024
"""Longer prompts are trimmed on a thread: a few kilobytes of many short messages take a millisecond."""

_EVERY: Final[tuple[TrimStrategy, ...]] = ("minify", "dedupe", "cap_tool_outputs", "drop_old_turns")
"""What an overloaded lane may do to a route that names no strategies: nothing that touches the last turn's words."""


class Trimmed(msgspec.Struct, frozen=True):
    """A request that goes on, and what was cut from it."""

    request: ChatRequest
    cut_bytes: tuple[tuple[TrimStrategy, int], ...] = ()
    """By each strategy that cut anything, in order."""


class Trimmer(Protocol):
    """Shortens a request to a route's budget, or returns it as it is. Pure: the same request is cut the same way."""

    def trim(self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN) -> Trimmed:
        """The request to go on with; the same object when nothing was cut."""
        ...

    def trim_more(
        self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN
    ) -> ChatRequest | None:
        """A shorter request than the rule asks for, for a moment in which a long one would come too late; None when
        there is nothing more to cut."""
        ...


class PolicyTrimmer:
    """Applies what the policy names: dead weight always, words only where the budget is exceeded."""

    def trim(self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN) -> Trimmed:
        """See Trimmer."""
        if not rule.strategies:
            return Trimmed(request)
        budget = None if rule.budget_tokens is None else int(rule.budget_tokens * bytes_per_token)
        return _trimmed(request, rule.strategies, budget)

    def trim_more(
        self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN
    ) -> ChatRequest | None:
        """See Trimmer."""
        messages = request.document["messages"]
        whole = Conversation(messages).num_bytes
        allowed = whole if rule.budget_tokens is None else min(whole, int(rule.budget_tokens * bytes_per_token))
        trimmed = _trimmed(request, rule.strategies or _EVERY, int(allowed * MORE_RATIO))
        return trimmed.request if trimmed.cut_bytes else None


def _trimmed(request: ChatRequest, strategies: tuple[TrimStrategy, ...], budget_bytes: int | None) -> Trimmed:
    before = conversation = repeating = Conversation(request.document["messages"])
    cuts: list[tuple[TrimStrategy, int]] = []
    for strategy in _ORDER:
        if strategy not in strategies:
            continue
        if strategy == "dedupe":
            repeating = conversation
        if strategy == "drop_old_turns" and "dedupe" in strategies:
            shorter = conversation if budget_bytes is None else _recent(conversation, repeating, budget_bytes)
        else:
            shorter = _apply(strategy, conversation, budget_bytes)
        gain = conversation.num_bytes - shorter.num_bytes
        if gain > 0:
            cuts.append((strategy, gain))
            conversation = shorter
    if conversation is before:
        return Trimmed(request)
    return Trimmed(request.with_messages(conversation.messages), tuple(cuts))


def _recent(conversation: Conversation, repeating: Conversation, budget_bytes: int) -> Conversation:
    """Without its oldest turns. What a later turn repeats of one that goes, it says itself again (`repeating` is the
    conversation before repetitions were dropped), and where that is too much, more turns go."""
    for _ in range(_MAX_ROUNDS):
        kept = recent_turns(conversation, budget_bytes)
        if len(kept) == len(conversation.messages):
            return conversation
        repeating = repeating.only(kept)
        conversation = dedupe(repeating)
    return _least_cut(repeating, budget_bytes)


def _least_cut(repeating: Conversation, budget_bytes: int) -> Conversation:
    """Without as few of its oldest turns as it takes, and then without repetitions: halves where to look each time."""
    turns = repeating.turns()
    first, last = min(1, len(turns) - 1), len(turns) - 1
    while first < last:
        middle = (first + last) // 2
        if dedupe(repeating.only(from_turn(repeating, turns[middle]))).num_bytes <= budget_bytes:
            last = middle
        else:
            first = middle + 1
    return dedupe(repeating.only(from_turn(repeating, turns[first])))


_MAX_ROUNDS: Final = 4
"""More are needed where a long text returns with each turn: one turn a round would go."""

_ORDER: Final[tuple[TrimStrategy, ...]] = ("minify", "cap_tool_outputs", "dedupe", "drop_old_turns", "extract_passages")
"""Capped before deduped: what an output lost in its middle, nothing later may refer to."""


def _apply(strategy: TrimStrategy, conversation: Conversation, budget_bytes: int | None) -> Conversation:
    if strategy == "minify":
        return minify(conversation)
    if strategy == "dedupe":
        return dedupe(conversation)
    if strategy == "cap_tool_outputs":
        return cap_tool_outputs(conversation)
    if budget_bytes is None:
        return conversation
    if strategy == "drop_old_turns":
        return conversation.only(recent_turns(conversation, budget_bytes))
    return extract_passages(conversation, budget_bytes)
