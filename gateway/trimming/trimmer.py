"""Trimmer: applies a route's strategies, the least lossy first, until the prompt fits its budget."""

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
"""Share of the budget, or of the prompt without one, to which `trim_more` cuts a prompt that would come too late."""

MAX_TRIMMED_HERE_BYTES: Final = 4 * 1024
"""Size up to which the event loop trims; longer prompts go to a thread.

A few kilobytes of many short messages take a millisecond.
"""

_EVERY: Final[tuple[TrimStrategy, ...]] = ("minify", "dedupe", "cap_tool_outputs", "drop_old_turns")
"""Strategies that an overloaded lane applies to a route that names none.

They leave the words of the last turn alone.
"""


class Trimmed(msgspec.Struct, frozen=True):
    """A request after trimming, and the cuts made."""

    request: ChatRequest
    cut_bytes: tuple[tuple[TrimStrategy, int], ...] = ()
    """Bytes cut by each strategy that cut anything, in order."""


class Trimmer(Protocol):
    """Interface of code that shortens a request to a route's budget.

    Implementations are pure: equal requests are cut alike.
    """

    def trim(self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN) -> Trimmed:
        """Return the trimmed request; it holds the object passed in when nothing was cut."""
        ...

    def trim_more(
        self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN
    ) -> ChatRequest | None:
        """Return a request shorter than the rule requires, or None when nothing more can be cut.

        Admission uses it while a long prompt would come too late.
        """
        ...


class PolicyTrimmer:
    """Trimmer that applies the policy's strategies: redundant bytes always, words only beyond the budget."""

    def trim(self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN) -> Trimmed:
        """Return the request after the rule's strategies; see `Trimmer.trim`."""
        if not rule.strategies:
            return Trimmed(request)
        budget = None if rule.budget_tokens is None else int(rule.budget_tokens * bytes_per_token)
        return _trimmed(request, rule.strategies, budget)

    def trim_more(
        self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN
    ) -> ChatRequest | None:
        """Return the request cut to half of what the rule allows, or None; see `Trimmer.trim_more`."""
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
    """Drop the oldest turns until the conversation fits the budget.

    A text that a dropped turn had first is restored in the turn that repeats it. Where that exceeds the budget, more
    turns go.

    Args:
        conversation: The conversation without repetitions.
        repeating: The conversation with its repetitions.
        budget_bytes: Size to fit, in bytes.
    """
    for _ in range(_MAX_PASSES):
        retained = recent_turns(conversation, budget_bytes)
        if len(retained) == len(conversation.messages):
            return conversation
        repeating = repeating.only(retained)
        conversation = dedupe(repeating)
    return _least_cut(repeating, budget_bytes)


def _least_cut(repeating: Conversation, budget_bytes: int) -> Conversation:
    """Drop as few of the oldest turns as needed, found by binary search, and then the repetitions."""
    turns = repeating.turns()
    first, last = min(1, len(turns) - 1), len(turns) - 1
    while first < last:
        middle = (first + last) // 2
        if dedupe(repeating.only(from_turn(repeating, turns[middle]))).num_prompt_bytes <= budget_bytes:
            last = middle
        else:
            first = middle + 1
    return dedupe(repeating.only(from_turn(repeating, turns[first])))


_MAX_PASSES: Final = 4
"""Passes of dropping before binary search takes over; a long text repeated in each turn costs one round a turn."""

_ORDER: Final[tuple[TrimStrategy, ...]] = ("minify", "cap_tool_outputs", "dedupe", "drop_old_turns", "extract_passages")
"""Order of the strategies. Capping precedes deduplication: no text may refer to the cut middle of an output."""


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
