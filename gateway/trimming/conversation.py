"""Conversation: a request's messages as plain JSON, grouped into turns, and the parts that no strategy may change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, Final

Message = dict[str, Any]
Edit = Callable[[str], str]

MARKUP_BYTES: Final = 16
"""Bytes of text that a chat template's markup of one message is worth: its role and its ends take about four tokens."""
_INSTRUCTING: Final = frozenset({"system", "developer"})


class Conversation:
    """Messages of one request; strategies build new lists and never change a message in place."""

    __slots__ = ("has_newer", "messages")

    def __init__(self, messages: Sequence[Message], *, has_newer: bool = False) -> None:
        """Create a conversation.

        Args:
            messages: The messages.
            has_newer: True where newer messages of the last turn follow that no strategy may change: all tool calls
                here are old then, and each is a turn of its own.
        """
        self.messages = list(messages)
        self.has_newer = has_newer

    @property
    def num_bytes(self) -> int:
        """Bytes of all text as UTF-8, tool calls included."""
        return sum(map(size_of, self.messages))

    @property
    def num_prompt_bytes(self) -> int:
        """Bytes that count against a budget: those of all text, and a chat template's markup of every message."""
        return self.num_bytes + MARKUP_BYTES * len(self.messages)

    def turns(self) -> list[range]:
        """Return the message indexes of each turn.

        Turn 0 holds the leading instructions and may be empty. Every user message begins a turn. The output of a tool
        call stays in the turn of the call. With newer messages behind these, each call of the last turn is a turn with
        its results, and an empty turn ends the list.
        """
        messages = self.messages
        start = 0
        while start < len(messages) and messages[start]["role"] in _INSTRUCTING:
            start += 1
        begins = [index for index in range(start, len(messages)) if messages[index]["role"] == "user"]
        if not begins or begins[0] != start:
            begins.insert(0, start)
        if self.has_newer:
            begins = [*sorted({*begins, *self.cycles()}), len(messages)]
        ends = [*begins[1:], len(messages)]
        turns = [range(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end or self.has_newer]
        return [range(start), *turns]

    def last_user_message(self) -> int:
        """Return the index of the last user message; -1 without one."""
        users = (index for index in range(len(self.messages) - 1, -1, -1) if self.messages[index]["role"] == "user")
        return next(users, -1)

    def cycles(self) -> list[int]:
        """Return where each cycle of the last turn begins: a message of the model, with the results of its calls."""
        behind = range(self.last_user_message() + 1, len(self.messages))
        return [index for index in behind if self.messages[index]["role"] == "assistant"]

    def last_turn_begins(self) -> int:
        """Return the index of the last turn's first message."""
        turns = self.turns()
        return turns[-1].start if len(turns) > 1 else len(self.messages)

    def of(self, messages: Sequence[Message]) -> Conversation:
        """Return a conversation of other messages at the same place: with newer ones behind them, or without."""
        return Conversation(messages, has_newer=self.has_newer)

    def only(self, indexes: Iterable[int]) -> Conversation:
        """Return a conversation of the messages at these indexes."""
        return self.of([self.messages[index] for index in indexes])

    def instructs(self, index: int) -> bool:
        """Return whether the message is a system or developer message, at any position."""
        return self.messages[index]["role"] in _INSTRUCTING

    def old_messages(self) -> range:
        """Return the indexes between the leading instructions and the last turn, which strategies may change.

        With newer messages behind these, the last user message is among them, and stays all the same.
        """
        return range(self.turns()[0].stop, self.last_turn_begins())

    def fixed_messages(self) -> Set[int]:
        """Return the messages that stay at any place: instructions, and with newer messages the last user message."""
        found = {index for index in range(len(self.messages)) if self.instructs(index)}
        return found | ({self.last_user_message()} - {-1} if self.has_newer else set())


def size_of(message: Message) -> int:
    """Return the bytes of a message's text and tool calls."""
    content = message.get("content")
    size = 0
    if isinstance(content, str):
        size = len(content.encode())
    elif isinstance(content, list):
        size = sum(len(part["text"].encode()) for part in content if isinstance(part.get("text"), str))
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        size += len(str(function.get("name", ""))) + len(str(function.get("arguments", "")).encode())
    return size


def edited(message: Message, edit: Edit) -> Message:
    """Return the message with `edit` applied to each of its texts; the object passed in when nothing changed."""
    content = message.get("content")
    if isinstance(content, str):
        text = edit(content)
        return message if text == content else {**message, "content": text}
    if not isinstance(content, list):
        return message
    parts = [_edited_part(part, edit) for part in content]
    return message if parts == content else {**message, "content": parts}


def _edited_part(part: Any, edit: Edit) -> Any:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        text = edit(part["text"])
        return part if text == part["text"] else {**part, "text": text}
    return part
