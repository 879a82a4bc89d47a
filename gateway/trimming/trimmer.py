"""Trimmer: applies a route's strategies, the least lossy first, until the prompt fits its budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final, Protocol

import msgspec

from gateway.chat.request import ChatRequest
from gateway.trimming.agent_loop import divided
from gateway.trimming.conversation import Conversation, Message
from gateway.trimming.dedupe import dedupe
from gateway.trimming.minify import minify
from gateway.trimming.passages import PassageSelection
from gateway.trimming.tools import cap_tool_outputs, is_output
from gateway.trimming.turn_window import TurnWindow, whole_outputs
from routing_policies.policy.document import Trim
from routing_policies.policy.values import TrimStrategy

DEFAULT_BYTES_PER_TOKEN: Final = 4.0
MORE_RATIO: Final = 0.5
"""Share of the budget, or of the prompt without one, to which `trim_more` cuts a prompt that would come too late."""

MAX_TRIMMED_HERE_BYTES: Final = 4 * 1024
"""Size up to which the event loop trims; longer prompts go to a thread.

A few kilobytes of many short messages take a millisecond.
"""

_OVERLOADED: Final[tuple[TrimStrategy, ...]] = ("dedupe", "cap_tool_outputs", "drop_old_turns")
"""Strategies that an overloaded lane applies to a route that names none.

They leave the words of the last turn alone.
"""
_ANY_SIZE: Final[frozenset[TrimStrategy]] = frozenset({"minify", "downscale_images"})
"""Strategies that a route has applied below its budget too."""


class Trimmed(msgspec.Struct, frozen=True):
    """A request after trimming, and the cuts made."""

    request: ChatRequest
    cut_bytes: tuple[tuple[TrimStrategy, int], ...] = ()
    """Bytes cut by each strategy that cut anything, in order."""

    def cut_tokens(self, bytes_per_token: float) -> tuple[tuple[str, int], ...]:
        """Return the tokens cut by each strategy; at least one, where anything was cut."""
        return tuple((strategy, max(1, int(cut / bytes_per_token))) for strategy, cut in self.cut_bytes)


def summed_cuts(cuts: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Return the tokens cut by each strategy, once for each; an overloaded lane may repeat those of the route."""
    sums: dict[str, int] = {}
    for strategy, tokens in cuts:
        sums[strategy] = sums.get(strategy, 0) + tokens
    return tuple(sums.items())


class Trimmer(Protocol):
    """Interface of code that shortens a request to a route's budget.

    Implementations are pure: equal requests with equal similarities are cut alike.
    """

    def trim(self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN) -> Trimmed:
        """Return the trimmed request; it holds the object passed in when nothing was cut."""
        ...

    def begin(self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN) -> TrimInWork:
        """Return the trimming up to the selection of passages, for a caller that compares them with the question."""
        ...

    def trim_more(
        self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN
    ) -> Trimmed | None:
        """Return a request shorter than the rule requires, or None when nothing more can be cut.

        Admission uses it while a long prompt would come too late.
        """
        ...


class TrimInWork:
    """Trimming of one request up to its last step, the selection of passages."""

    __slots__ = ("_conversation", "_cuts", "_newer", "_request", "selection")

    def __init__(
        self,
        request: ChatRequest,
        conversation: Conversation,
        cuts: list[tuple[TrimStrategy, int]],
        selection: PassageSelection | None = None,
        newer: Sequence[Message] = (),
    ) -> None:
        self._request = request
        self._conversation = conversation
        self._cuts = cuts
        self.selection = selection
        """Selection of passages; None where the conversation fits without it."""
        self._newer = newer
        """Messages behind the conversation that stay as they are."""

    def finish(self, similarities: Mapping[int, float] | None = None) -> Trimmed:
        """Return the trimmed request, with passages selected by words and by these similarities."""
        conversation, cuts = self._conversation, self._cuts
        if self.selection is not None:
            shorter = self.selection.conversation(similarities)
            if (gain := conversation.num_bytes - shorter.num_bytes) > 0:
                cuts = [*cuts, ("extract_passages", gain)]
                conversation = shorter
        if not cuts:
            return Trimmed(self._request)
        return Trimmed(self._request.with_messages([*conversation.messages, *self._newer]), tuple(cuts))


class PolicyTrimmer:
    """Trimmer that applies the policy's strategies; words go only beyond the budget."""

    def trim(self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN) -> Trimmed:
        """Return the request after the rule's strategies; see `Trimmer.trim`."""
        return self.begin(request, rule, bytes_per_token).finish()

    def begin(self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN) -> TrimInWork:
        """Return the trimming up to the selection of passages; see `Trimmer.begin`."""
        budget = None if rule.budget_tokens is None else int(rule.budget_tokens * bytes_per_token)
        return _begun(request, rule.strategies, budget)

    def trim_more(
        self, request: ChatRequest, rule: Trim, bytes_per_token: float = DEFAULT_BYTES_PER_TOKEN
    ) -> Trimmed | None:
        """Return the request cut to half of what the rule allows, or None; see `Trimmer.trim_more`."""
        whole = Conversation(request.document["messages"]).num_bytes
        allowed = whole if rule.budget_tokens is None else min(whole, int(rule.budget_tokens * bytes_per_token))
        trimmed = _begun(request, rule.strategies or _OVERLOADED, int(allowed * MORE_RATIO)).finish()
        return trimmed if trimmed.cut_bytes else None


def is_within(request: ChatRequest, rule: Trim, bytes_per_token: float) -> bool:
    """Return whether the request surely needs no trimming, by its size alone.

    The bytes of the body include at least as much markup as a chat template adds.
    """
    if rule.budget_tokens is None or not _ANY_SIZE.isdisjoint(rule.strategies):
        return not rule.strategies
    return request.text_bytes <= rule.budget_tokens * bytes_per_token


def _begun(request: ChatRequest, strategies: tuple[TrimStrategy, ...], budget_bytes: int | None) -> TrimInWork:
    conversation = Conversation(request.document["messages"])
    cuts: list[tuple[TrimStrategy, int]] = []

    def take(strategy: TrimStrategy, shorter: Conversation) -> None:
        nonlocal conversation
        if (gain := conversation.num_bytes - shorter.num_bytes) > 0:
            cuts.append((strategy, gain))
            conversation = shorter

    if "minify" in strategies:
        take("minify", minify(conversation))
    if budget_bytes is not None and conversation.num_prompt_bytes <= budget_bytes:
        return TrimInWork(request, conversation, cuts)
    has_passages = budget_bytes is not None and "extract_passages" in strategies
    conversation, newer, budget_bytes = divided(conversation, budget_bytes, has_passages=has_passages)
    # Capping precedes deduplication: no text may refer to the cut middle of an output.
    if "cap_tool_outputs" in strategies:
        take("cap_tool_outputs", cap_tool_outputs(conversation, _spared(conversation, has_passages=has_passages)))
    repeating = conversation
    if "dedupe" in strategies:
        take("dedupe", dedupe(conversation))
    if budget_bytes is None:
        return TrimInWork(request, conversation, cuts, newer=newer)
    is_loop = conversation.has_newer
    is_capped = {"cap_tool_outputs", "drop_old_turns"} <= {*strategies} and not is_loop
    if "drop_old_turns" in strategies:
        window = TurnWindow(budget_bytes, has_passages=has_passages, are_outputs_capped=is_capped, is_loop=is_loop)
        is_deduped = "dedupe" in strategies
        shorter = window.recent_of_repeating(conversation, repeating) if is_deduped else window.recent(conversation)
        take("drop_old_turns", shorter)
    is_over = has_passages and conversation.num_prompt_bytes > budget_bytes
    if not is_over:
        return TrimInWork(request, conversation, cuts, newer=newer)
    wanted = _format_of(request)
    selection = PassageSelection(conversation, budget_bytes, response_format=wanted, are_outputs_capped=is_capped)
    return TrimInWork(request, conversation, cuts, selection, newer)


def _spared(conversation: Conversation, *, has_passages: bool) -> Set[int]:
    """Return the messages whose outputs no cap cuts, because their passages are selected by the question."""
    if not has_passages or not any(is_output(message) for message in conversation.messages):
        return frozenset()
    newest = range(conversation.last_user_message(), len(conversation.messages)) if conversation.has_newer else ()
    return {*whole_outputs(conversation), *newest}


def _format_of(request: ChatRequest) -> object:
    """Return the request's `response_format`, or that of the dialect it was translated from."""
    return request.document.get("response_format")
