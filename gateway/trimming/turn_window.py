"""TurnWindow: the turns that stay: recent ones, those with documents, and those that the question refers to."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final

from gateway.trimming.conversation import MARKUP_BYTES, Conversation, Message, size_of
from gateway.trimming.dedupe import dedupe
from gateway.trimming.passages import MIN_LOOP_OUTPUT_BYTES, cuttable_bytes, message_texts, shortest_bytes
from gateway.trimming.relevance.bm25 import SegmentIndex
from gateway.trimming.relevance.instructions import is_standing
from gateway.trimming.relevance.question import question_of
from gateway.trimming.relevance.words import Words
from gateway.trimming.structure.sentences import sentences_of
from gateway.trimming.tools import is_output
from gateway.trimming.turns import from_turn, recent_turns

SHORT_OUTPUT_BYTES: Final = 64
"""Bytes that an old output of an agent's loop counts for where its passages can be selected; none of it must stay."""
CHAT_SHARE: Final = 0.5
"""Share of the room that recent turns have, however long the documents of the conversation are."""
DOCUMENT_SHARE: Final = 0.25
"""Share of the room up to which every turn with a document stays, whatever the question is."""
STANDING_SHARE: Final = 0.25
"""Share of the room that old turns may take because they instruct for all that follows."""
MIN_COVERAGE: Final = 0.5
"""Share of the question's words, weighted by rarity, in one sentence of an old turn that the question refers to."""
_MAX_ORDER_CHARS: Final = 600
_MIN_WORDS: Final = 2
_MAX_RECALLED: Final = 3
"""Number of old turns that a question brings back."""
_MAX_PASSES: Final = 4
"""Passes of dropping before binary search takes over; a long text repeated in each turn costs one round a turn."""
_MAX_TURN_CHARS: Final = 64 * 1024
"""Characters of one turn that are searched for what the question refers to."""


class TurnWindow:
    """Choice of turns for a budget; passages of long texts are selected afterwards where `has_passages` is set."""

    def __init__(
        self, budget_bytes: int, *, has_passages: bool, are_outputs_capped: bool = False, is_loop: bool = False
    ) -> None:
        """Create a window.

        Args:
            budget_bytes: Size that the turns should fit.
            has_passages: Whether passages of long texts are selected afterwards.
            are_outputs_capped: Whether short outputs of tools stay as they are then.
            is_loop: Whether the turns are old calls of a last turn that goes on behind them.
        """
        self._budget_bytes = budget_bytes
        self._is_loop = is_loop
        self._has_passages = has_passages
        self._are_outputs_capped = are_outputs_capped

    def recent(self, conversation: Conversation) -> Conversation:
        """Return the conversation without the turns that do not fit."""
        return conversation.only(self._retained(conversation))

    def recent_of_repeating(self, conversation: Conversation, repeating: Conversation) -> Conversation:
        """Return the conversation without the turns that do not fit, and without repetitions.

        A text that a dropped turn had first is restored in the turn that repeats it. Where that exceeds the budget,
        more turns go.

        Args:
            conversation: The conversation without repetitions.
            repeating: The conversation with its repetitions.
        """
        for _ in range(_MAX_PASSES):
            retained = self._retained(conversation)
            if len(retained) == len(conversation.messages):
                return conversation
            repeating = repeating.only(retained)
            conversation = dedupe(repeating)
        return self._least_cut(repeating)

    def _retained(self, conversation: Conversation) -> list[int]:
        if self._size(conversation) <= self._budget_bytes:
            return [*range(len(conversation.messages))]
        budget = self._budget_bytes - self._reserved_bytes(conversation)
        documents = self._documents(conversation) | self._standing(conversation)
        retained = recent_turns(conversation, budget, size=self._size_of, retained=documents)
        recalled = self._recalled(conversation, retained)
        if not recalled:
            return retained
        return recent_turns(conversation, budget, size=self._size_of, retained=documents | recalled)

    def _size_of(self, message: Message) -> int:
        """Return the bytes that a message counts for."""
        if not self._has_passages:
            return size_of(message)
        if self._is_loop and is_output(message):
            return size if (size := size_of(message)) < MIN_LOOP_OUTPUT_BYTES else SHORT_OUTPUT_BYTES
        return shortest_bytes(message, are_outputs_capped=self._are_outputs_capped)

    def _size(self, conversation: Conversation) -> int:
        return sum(map(self._size_of, conversation.messages)) + MARKUP_BYTES * len(conversation.messages)

    def _room_bytes(self, conversation: Conversation) -> int:
        """Return the budget less what stays in any case: instructions and the last turn."""
        old = {*conversation.old_messages()} - conversation.fixed_messages()
        fixed = [index for index in range(len(conversation.messages)) if index not in old]
        return max(0, self._budget_bytes - self._size(conversation.only(fixed)))

    def _reserved_bytes(self, conversation: Conversation) -> int:
        """Return the part of the room that is left to passages."""
        if not self._has_passages:
            return 0
        long_bytes = sum(map(size_of, conversation.messages)) - sum(map(self._size_of, conversation.messages))
        return min(long_bytes, int(self._room_bytes(conversation) * (1 - CHAT_SHARE)))

    def _documents(self, conversation: Conversation) -> Set[int]:
        """Return the turns with documents, by their first message; none where they are too many to keep."""
        if not self._has_passages:
            return frozenset()
        old = [turn for turn in conversation.turns()[1:-1] if _has_document(conversation, turn)]
        size = sum(self._size_of(conversation.messages[index]) + MARKUP_BYTES for turn in old for index in turn)
        return (
            frozenset(turn.start for turn in old)
            if size <= self._room_bytes(conversation) * DOCUMENT_SHARE
            else frozenset()
        )

    def _standing(self, conversation: Conversation) -> Set[int]:
        """Return the turns whose user message instructs for all that follows, by their first message, while they fit.

        The latest count first, because a later instruction may replace an earlier one.
        """
        room = self._room_bytes(conversation) * STANDING_SHARE
        found: set[int] = set()
        for turn in reversed(conversation.turns()[1:-1]):
            messages = [conversation.messages[index] for index in turn]
            if not _gives_standing_order(messages[0]):
                continue
            room -= sum(self._size_of(message) + MARKUP_BYTES for message in messages)
            if room < 0:
                break
            found.add(turn.start)
        return found

    def _recalled(self, conversation: Conversation, retained: Sequence[int]) -> Set[int]:
        """Return the dropped turns that the question refers to, by their first message, while they fit."""
        messages, stays = conversation.messages, frozenset(retained)
        users = [index for index in range(len(messages)) if messages[index]["role"] == "user"]
        if not users or len(stays) == len(messages):
            return frozenset()
        old = [turn for turn in conversation.turns()[1:] if turn.start != users[-1]]
        room = self._room_bytes(conversation) * CHAT_SHARE
        found: set[int] = set()
        least = 0.0 if self._is_loop else MIN_COVERAGE  # of a loop's calls, those that bear on the task most
        for turn in _referred_to(old, conversation, _last_question(conversation), least):
            if turn.start in stays or len(found) >= _MAX_RECALLED:
                continue
            room -= sum(self._size_of(messages[index]) + MARKUP_BYTES for index in turn)
            if room >= 0:
                found.add(turn.start)
        return found

    def _least_cut(self, repeating: Conversation) -> Conversation:
        """Drop as few of the oldest turns as needed, found by binary search, and then the repetitions."""
        turns = repeating.turns()
        first, last = min(1, len(turns) - 1), len(turns) - 1
        while first < last:
            middle = (first + last) // 2
            if self._size(dedupe(repeating.only(from_turn(repeating, turns[middle])))) <= self._budget_bytes:
                last = middle
            else:
                first = middle + 1
        return dedupe(repeating.only(from_turn(repeating, turns[first])))


def whole_outputs(conversation: Conversation) -> Set[int]:
    """Return the outputs of tools that a selection should see whole: those of the turn before, and of the question.

    An earlier output that the question refers to is recalled as a turn is.
    """
    begins = max((turn.start for turn in conversation.turns()[-2:-1]), default=0)
    messages = conversation.messages
    outputs = [index for index in conversation.old_messages() if cuttable_bytes(messages[index])]
    old = [range(index, index + 1) for index in outputs if index < begins and is_output(messages[index])]
    recalled = _referred_to(old, conversation, _last_question(conversation))[:_MAX_RECALLED]
    return {*range(begins, len(messages)), *(index for message in recalled for index in message)}


def _last_question(conversation: Conversation) -> str:
    """Return the text of the last user message; empty without one."""
    users = [message for message in conversation.messages if message["role"] == "user"]
    return "\n".join(text for _, text in message_texts(users[-1])) if users else ""


def _gives_standing_order(message: Message) -> bool:
    """Return whether a short text of a user message instructs for all that follows."""
    if message["role"] != "user":
        return False
    texts = (text for _, text in message_texts(message) if len(text) <= _MAX_ORDER_CHARS)
    return any(is_standing(sentence) for text in texts for sentence in sentences_of(text))


def _has_document(conversation: Conversation, turn: range) -> bool:
    messages = conversation.messages
    return any(messages[index]["role"] == "user" and cuttable_bytes(messages[index]) for index in turn)


def _referred_to(
    turns: Sequence[range], conversation: Conversation, question: str, least_coverage: float = MIN_COVERAGE
) -> list[range]:
    """Return the turns that the question refers to, the most covering first."""
    words = Words()
    rows: list[list[str]] = []
    ends: list[int] = []
    for turn in turns:
        text = "\n".join(text for index in turn for _, text in message_texts(conversation.messages[index]))
        rows += [words.of(sentence) for sentence in sentences_of(text[:_MAX_TURN_CHARS])]
        ends.append(len(rows))
    wanted = {word: weight for word, weight in question_of(question).weights.items() if not word.endswith("*")}
    index = SegmentIndex(rows)
    total = sum(index.rarity(word) for word in wanted)
    if not total:
        return []
    least = min(_MIN_WORDS, len(wanted))
    found = []
    for turn, begin, end in zip(turns, [0, *ends], ends, strict=False):
        shares = [_coverage(rows[number], wanted, index, least) for number in range(begin, end)]
        found.append((max(shares, default=0.0) / total, turn))
    covering = [(share, turn) for share, turn in found if share and share >= least_coverage]
    return [turn for _, turn in sorted(covering, key=lambda pair: (-pair[0], -pair[1].start))]


def _coverage(row: Sequence[str], wanted: dict[str, float], index: SegmentIndex, least: int) -> float:
    known = {word for word in row if word in wanted}
    return sum(sorted(index.rarity(word) for word in known)) if len(known) >= least else 0.0
