"""PassageSelection: the passages of long texts that a conversation keeps within a budget, chosen by its question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gateway.trimming.conversation import Conversation, Message, size_of
from gateway.trimming.pinning import (
    MAX_PARAGRAPH_BYTES,
    MAX_SHARE,
    pin_ends,
    pin_json_words,
    pin_orders,
    question_text,
    without_orders,
)
from gateway.trimming.relevance.question import Question, fields_of, question_of
from gateway.trimming.relevance.scores import SegmentedText, SegmentScores
from gateway.trimming.structure.layout import layout_of
from gateway.trimming.structure.segment import GAP, SegmentGroup, TextSegment, num_bytes_of
from gateway.trimming.tools import MAX_CAPPED_BYTES, is_output

MIN_PASSAGE_BYTES: Final = 1200
"""Size below which a text stays whole."""
LONG_TEXT_BYTES: Final = 400
"""Bytes that a long text counts for where its passages can be selected: its ends, which stay."""
WINDOW_CHARS: Final = 240
"""Length of the passages that are compared with the question by the encoder; of a short text each segment is."""
MIN_LOOP_OUTPUT_BYTES: Final = 64
"""Size below which an old output of an agent's loop stays whole; many short ones fill a budget, too."""
_CUT_ROLES: Final = frozenset({"user", "assistant", "tool", "function"})
_SURE_SHARE: Final = 0.5
"""Share of the room whose best passages stay without a look at their similarity."""


class _Text:
    """One long text of a message: its layout, and its place in the conversation."""

    __slots__ = ("begin", "index", "layout", "num_bytes", "part", "role", "segments", "text")

    def __init__(self, text: str, index: int, part: int | None, *, role: str) -> None:
        self.text = text
        self.index = index
        self.part = part
        self.role = role
        self.num_bytes = num_bytes_of(text)
        self.layout = SegmentGroup(())
        self.segments: Sequence[TextSegment] = ()
        self.begin = 0
        """Number of its first segment."""

    def lay_out(self, room_bytes: int) -> None:
        """Divide the text into segments that a room can hold."""
        self.layout = layout_of(self.text, room_bytes)
        self.segments = [*self.layout.segments()]


class PassageSelection:
    """Selection over the long texts of a conversation; `conversation` is what remains of it."""

    def __init__(
        self,
        conversation: Conversation,
        budget_bytes: int,
        *,
        response_format: object = None,
        are_outputs_capped: bool = False,
    ) -> None:
        """Lay out the long texts and score their passages by words.

        Args:
            conversation: The messages to shorten.
            budget_bytes: Size that the whole conversation should fit, in bytes of UTF-8.
            response_format: The request's `response_format`; what it needs stays.
            are_outputs_capped: Whether short outputs of tools stay as they are while there is room.
        """
        self._conversation = conversation
        left_bytes = budget_bytes - conversation.num_prompt_bytes
        self._texts = [*_long_texts(conversation, are_outputs_capped=are_outputs_capped)]
        if are_outputs_capped and left_bytes + _size_of(self._texts) < 0:
            self._texts = [*_long_texts(conversation, are_outputs_capped=False)]
        self._room_bytes = left_bytes + _size_of(self._texts)
        for text in self._texts:
            text.lay_out(self._room_bytes)
        self.question = self._pin(response_format)
        self._ages = _ages_of(conversation)
        begin = 0
        for text in self._texts:
            text.begin = begin
            begin += len(text.segments)
        self._segments = [segment for text in self._texts for segment in text.segments]
        self._scores = SegmentScores([self._scored(text) for text in self._texts], self.question)

    def windows(self, max_windows: int) -> list[tuple[str, tuple[int, ...]]]:
        """Return passages near the budget's cut, the likelier first, each with the numbers of its segments.

        Their similarity to the question decides between them; the best ones stay and the rest goes without it.
        """
        num_chars = sum(len(segment.text) for segment in self._segments)
        windows = [*self._all_windows(min(WINDOW_CHARS, num_chars // max_windows))]
        window_of = {number: window for window in windows for number in window}
        sure_bytes = self._room_bytes * _SURE_SHARE if len(windows) > max_windows else 0
        found: dict[tuple[int, ...], None] = {}
        for number in self._ranked(self._scores.total()):
            if sure_bytes > 0:
                sure_bytes -= self._segments[number].num_bytes
                continue
            found[window_of[number]] = None
            if len(found) >= max_windows:
                break
        return [("".join(self._segments[number].text for number in window).strip(), window) for window in found]

    def conversation(self, similarities: Mapping[int, float] | None = None) -> Conversation:
        """Retain the best passages that fit, and return the conversation with the others cut.

        Args:
            similarities: Cosines of segments to the question, by number.
        """
        room = self._room_bytes - sum(_rendered_bytes(text) for text in self._texts)
        for number in self._ranked(self._scores.total(similarities)):
            segment = self._segments[number]
            if segment.is_retained or segment.num_bytes > room:
                continue
            cost = segment.cost_bytes
            if cost <= room:
                segment.retain()
                room -= cost
        messages = list(self._conversation.messages)
        for text in self._texts:
            rendered = text.layout.rendered().strip() or GAP
            messages[text.index] = _with_text(messages[text.index], text.part, rendered)
        return self._conversation.of(messages)

    def _ranked(self, scores: Sequence[float]) -> list[int]:
        return sorted(range(len(scores)), key=lambda number: (-scores[number], number))

    def _scored(self, text: _Text) -> SegmentedText:
        segments = text.segments
        age = self._ages[text.index]
        return SegmentedText([segment.text for segment in segments], [segment.context for segment in segments], age)

    def _all_windows(self, most_chars: int) -> Iterable[tuple[int, ...]]:
        """Yield neighbouring segments of one text in stretches of at most so many characters, or of one segment."""
        for text in self._texts:
            window: list[int] = []
            num_chars = 0
            for number in range(text.begin, text.begin + len(text.segments)):
                length = len(self._segments[number].text)
                if window and num_chars + length > most_chars:
                    yield tuple(window)
                    window, num_chars = [], 0
                window.append(number)
                num_chars += length
            if window:
                yield tuple(window)

    def _pin(self, response_format: object) -> Question:
        """Pin what no question may cost, and return the question."""
        messages = self._conversation.messages
        users = [index for index, message in enumerate(messages) if message["role"] == "user"]
        last = users[-1] if users else -1
        begins = self._conversation.last_turn_begins()
        max_bytes = max(MAX_PARAGRAPH_BYTES, int(self._room_bytes * MAX_SHARE))
        questions: dict[int, str] = {}
        orders: dict[int, str] = {}
        for text in self._texts:
            is_last = text.index == last or text.index >= begins
            if text.role == "user":
                ends = pin_ends(text.layout, max_bytes if is_last else MAX_PARAGRAPH_BYTES)
                within = pin_orders(text.layout, self._room_bytes) if is_last else []
                question, others = question_text(ends, within)
                questions[text.index] = f"{questions.get(text.index, '')}{question}\n"
                orders[text.index] = f"{orders.get(text.index, '')}{others}\n"
            if _wants_json(response_format):
                pin_json_words(text.layout)
        long_parts = {(text.index, text.part) for text in self._texts}
        for index in users[-2:]:
            short = "\n".join(_other_texts(messages[index], index, long_parts)).strip()
            if short:  # beside a question of its own, a long part adds only context
                question, others = without_orders(short)
                orders[index] = f"{orders.get(index, '')}{questions.get(index, '')}{others}"
                questions[index] = question
        before = orders.get(last, "") + (questions.get(users[-2], "") if len(users) > 1 else "")
        return question_of(questions.get(last, ""), before, fields_of(response_format))


def extract_passages(conversation: Conversation, budget_bytes: int) -> Conversation:
    """Reduce long texts to the passages that bear on the last question, until the conversation fits.

    Passages keep their order. The question, instructions and short texts stay whole; code and JSON stay valid.

    Args:
        conversation: The messages to shorten.
        budget_bytes: Size that the whole conversation should fit, in bytes of UTF-8.
    """
    if conversation.num_prompt_bytes <= budget_bytes:
        return conversation
    return PassageSelection(conversation, budget_bytes).conversation()


def extract(text: str, question: str, budget_bytes: int) -> str:
    """Return the passages of `text` that bear on `question`, within the budget; a short text comes back unchanged."""
    size = num_bytes_of(text)
    if size <= max(budget_bytes, MIN_PASSAGE_BYTES):
        return text
    messages = [{"role": "tool", "content": text}, {"role": "user", "content": question}]
    conversation = Conversation(messages)
    room = conversation.num_prompt_bytes - size + budget_bytes
    found: str = PassageSelection(conversation, room).conversation().messages[0]["content"]
    return found


def cuttable_bytes(message: Message, *, are_outputs_capped: bool = False) -> int:
    """Return the bytes of a message's long texts, which a selection may reduce to a few hundred each."""
    if message["role"] not in _CUT_ROLES:
        return 0
    least = MAX_CAPPED_BYTES + 1 if are_outputs_capped and is_output(message) else MIN_PASSAGE_BYTES
    return sum(num_bytes_of(text) for _, text in _long_message_texts(message, least))


def shortest_bytes(message: Message, *, are_outputs_capped: bool = False) -> int:
    """Return the bytes that a message counts for where passages of its long texts can be selected."""
    size = size_of(message)
    long_bytes = cuttable_bytes(message, are_outputs_capped=are_outputs_capped)
    return size - long_bytes + min(long_bytes, LONG_TEXT_BYTES) if long_bytes else size


def _long_texts(conversation: Conversation, *, are_outputs_capped: bool) -> Iterable[_Text]:
    begins = conversation.last_turn_begins()
    for index, message in enumerate(conversation.messages):
        if message["role"] not in _CUT_ROLES or (message["role"] == "assistant" and index >= begins):
            continue
        least = MIN_PASSAGE_BYTES
        if is_output(message) and conversation.has_newer:
            least = MIN_LOOP_OUTPUT_BYTES
        elif is_output(message) and are_outputs_capped and index < begins:
            least = MAX_CAPPED_BYTES + 1
        for part, text in _long_message_texts(message, least):
            yield _Text(text, index, part, role=message["role"])


def message_texts(message: Message) -> Iterable[tuple[int | None, str]]:
    """Yield the texts of a message, each with the number of its part; None for a plain string."""
    content = message.get("content")
    if isinstance(content, str):
        yield None, content
    elif isinstance(content, list):
        for place, part in enumerate(content):
            if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
                yield place, part["text"]


def _long_message_texts(message: Message, least_bytes: int) -> Iterable[tuple[int | None, str]]:
    for part, text in message_texts(message):
        if len(text) * 4 >= least_bytes and num_bytes_of(text) >= least_bytes:
            yield part, text


def _other_texts(message: Message, index: int, long_parts: set[tuple[int, int | None]]) -> Iterable[str]:
    return (text for part, text in message_texts(message) if (index, part) not in long_parts)


def _with_text(message: Message, part: int | None, text: str) -> Message:
    if part is None:
        return {**message, "content": text}
    parts: list[Any] = list(message["content"])
    parts[part] = {**parts[part], "text": text}
    return {**message, "content": parts}


def _ages_of(conversation: Conversation) -> list[int]:
    """Return the number of user messages behind each message."""
    ages, count = [], 0
    for message in reversed(conversation.messages):
        ages.append(count)
        count += message["role"] == "user"
    return ages[::-1]


def _size_of(texts: Iterable[_Text]) -> int:
    return sum(text.num_bytes for text in texts)


def _rendered_bytes(text: _Text) -> int:
    return num_bytes_of(text.layout.rendered())


def _wants_json(response_format: object) -> bool:
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    return kind in ("json_object", "json_schema")
