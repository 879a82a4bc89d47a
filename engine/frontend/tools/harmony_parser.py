"""Incremental parser of harmony, the format of gpt-oss: messages with a head that names channel and recipient.

    <|channel|>analysis<|message|>…<|end|>                                            reasoning
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>
    <|start|>assistant<|channel|>final<|message|>…<|return|>                          answer

The prompt ends with `<|start|>assistant`. Only special tokens are markers; their spelling in a message is text.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, Literal

from engine.frontend.tools.call_scanner import CallScanner, Parsed
from engine.frontend.tools.reasoning_parser import Phase
from engine.frontend.tools.tool_format import HARMONY_MARKERS, MakeId

_START, _CHANNEL, _MESSAGE, _CONSTRAIN = HARMONY_MARKERS[:4]
_ENDS: Final = frozenset(HARMONY_MARKERS[4:])
_RECIPIENT: Final = re.compile(r"to=(?:functions\.)?([^\s<]+)")
_CHANNEL_NAME: Final = re.compile(re.escape(_CHANNEL) + r"\s*(\w+)")
_FIRST_HEAD: Final = re.compile(r"\s*(?:t|to|to=\S*\s*\w*)?")
"""Text that the head of an output's first message may begin with, before any marker."""
_BETWEEN_MESSAGES: Final = "\n\n"

_Kind = Literal["head", "reasoning", "text", "call", "between"]


class HarmonyParser(CallScanner):
    """Parser of one output: its reasoning, its answer and its calls. Calls of unknown functions are text."""

    has_heads = True
    is_over = False
    num_held = 0

    def __init__(
        self, names: Collection[str], make_id: MakeId, max_calls: int | None = None, *, hides_reasoning: bool = True
    ) -> None:
        """Create a parser; without `hides_reasoning`, the reasoning is part of the answer's text."""
        super().__init__(names, make_id, max_calls)
        self._kind: _Kind = "head"
        self._head = ""
        self._is_first = True
        self._hides_reasoning = hides_reasoning
        self._has_arguments = False
        self._written: set[str] = set()
        """Kinds that have some text, from which the next message is set apart."""
        self._is_new = True
        """True if the message has no text yet."""
        self._parsed = Parsed()

    @property
    def phase(self) -> Phase:
        """Part of the output that the text so far ends in."""
        if self._kind in ("head", "between"):
            return "open"
        return "reasoning" if self._kind == "reasoning" and self._hides_reasoning else "answer"

    @property
    def _is_inside_call(self) -> bool:
        return self._kind == "call"

    def feed(self, text: str) -> Parsed:
        """Parse more text."""
        if text and not self.is_full:
            self._add(text)
        return self._take_all()

    def mark(self, marker: str) -> Parsed:
        """Parse a marker."""
        if self.is_full:
            return self._take_all()
        if marker == _START or (marker == _CHANNEL and self._kind != "head"):
            self._end_message()
            self._kind = "head"
            self._head = "" if marker == _START else marker
            self._is_first = False
        elif marker in _ENDS:
            self._end_message()
        elif self._kind == "head":
            self._mark_head(marker)
        return self._take_all()

    def finish(self) -> Parsed:
        """Parse the end of the output."""
        self._end_message()
        return self._take_all()

    def _mark_head(self, marker: str) -> None:
        if marker == _MESSAGE:
            self._begin_message()
        else:
            self._head += " " if marker == _CONSTRAIN else marker
            self._is_first = False

    def _add(self, text: str) -> None:
        match self._kind:
            case "head":
                self._head += text
                if self._is_first and not _FIRST_HEAD.fullmatch(self._head):
                    self._kind, text, self._head = "text", self._head, ""
                    self._write(text)
            case "call":
                self._has_arguments = True
                self._add_arguments(text)
            case "between":
                if text.strip():  # an answer without a head
                    self._kind = "text"
                    self._write(text.lstrip())
            case "reasoning" | "text":
                self._write(text)

    def _begin_message(self) -> None:
        """Begin the message whose head is complete."""
        recipient, channel = _RECIPIENT.search(self._head), _CHANNEL_NAME.search(self._head)
        self._is_new, self._is_first = True, False
        if recipient is not None and recipient[1] in self._names:
            self._kind = "call"
            self._has_arguments = False
            self._begin(recipient[1])
        elif channel is not None and channel[1] == "analysis":
            self._kind = "reasoning"
        else:
            self._kind = "text"
        self._head = ""

    def _end_message(self) -> None:
        if self._kind == "call" and not self._has_arguments:
            self._add_arguments("{}")
        self._kind, self._head = "between", ""

    def _write(self, text: str) -> None:
        kind = self._kind if self._hides_reasoning else "text"
        if self._is_new and kind in self._written:
            text = _BETWEEN_MESSAGES + text
        self._is_new = False
        self._written.add(kind)
        self._parsed += Parsed(reasoning=text) if kind == "reasoning" else Parsed(text=text)

    def _take_all(self) -> Parsed:
        """Return what was found since the last call."""
        parsed, self._parsed = self._parsed + Parsed(calls=tuple(self._calls)), Parsed()
        self._calls = []
        return parsed
