"""Incremental parser of reasoning before an answer. No I/O; the result does not depend on how the text is split."""

from __future__ import annotations

from enum import Enum
from typing import Literal, Protocol

from engine.frontend.tools.call_scanner import Parsed, num_started
from engine.frontend.tools.reasoning_format import ReasoningFormat

Phase = Literal["open", "reasoning", "answer"]
"""Part of the output that the next token belongs to; `open`: later tokens tell."""


class OutputParser(Protocol):
    """Parser of a whole output, which holds the reasoning and the answer."""

    @property
    def phase(self) -> Phase:
        """Part of the output that the text so far ends in."""

    @property
    def is_over(self) -> bool:
        """True if all that follows is answer text."""

    @property
    def num_held(self) -> int:
        """Number of characters held back that may become answer text."""

    @property
    def has_heads(self) -> bool:
        """True if the tokens before an answer are never part of it."""

    def feed(self, text: str) -> Parsed:
        """Parse more text."""

    def mark(self, marker: str) -> Parsed:
        """Parse a mark that the model wrote as one token."""

    def finish(self) -> Parsed:
        """Parse the end of the output."""


class _State(Enum):
    START = "start"
    REASONING = "reasoning"
    GAP = "gap"
    """Behind the reasoning, before the first character of the answer."""
    ANSWER = "answer"
    """In an answer between tags."""
    TAIL = "tail"
    """Behind these tags."""
    OVER = "over"


class ReasoningParser:
    """Parser of one output.

    1. An output that begins with something other than the opening mark has no reasoning.
    2. The first closing mark ends the reasoning; an opening mark inside it is text, and so are marks behind it.
    3. Reasoning without a closing mark lasts to the end of the output.

    White space around the reasoning and before the answer is dropped, because templates add it themselves.
    """

    has_heads = False

    def __init__(self, form: ReasoningFormat, *, starts_inside: bool) -> None:
        """Create a parser; `starts_inside` is true if the prompt ends with the opening mark."""
        self._form = form
        self._has_tokens = bool(form.markers)
        self._state = _State.REASONING if starts_inside else _State.START
        self._buffer = ""
        self._spaces = ""
        """White space inside the reasoning, held back until more text follows."""
        self._has_reasoning = False
        self._parsed = Parsed()

    @property
    def phase(self) -> Phase:
        """Part of the output that the text so far ends in; the gap behind the reasoning is part of it."""
        match self._state:
            case _State.START:
                return "open"
            case _State.REASONING | _State.GAP:
                return "reasoning"
            case _State.ANSWER | _State.TAIL | _State.OVER:
                return "answer"

    @property
    def is_over(self) -> bool:
        """True if all that follows is answer text."""
        return self._state is _State.OVER

    @property
    def num_held(self) -> int:
        """Number of characters held back that may become answer text."""
        return len(self._buffer) if self._state in (_State.START, _State.ANSWER) else 0

    def feed(self, text: str) -> Parsed:
        """Parse more text."""
        self._buffer += text
        while self._step():
            pass
        return self._take()

    def mark(self, marker: str) -> Parsed:
        """Parse a mark that the model wrote as one token."""
        if self._state is _State.START and marker in self._form.openings:
            self._buffer = ""
            self._state = _State.REASONING
        elif self._state is _State.REASONING and marker in self._form.closings:
            self._end_reasoning(self._buffer, "")
        else:
            return self.feed(marker)
        return self._take()

    def finish(self) -> Parsed:
        """Parse the end of the output: what was held back becomes reasoning or text."""
        if self._state is _State.REASONING:
            self._reason(self._buffer)
        else:
            self._parsed += Parsed(text=self._buffer)
        self._buffer = ""
        self._state = _State.OVER
        return self._take()

    def _step(self) -> bool:
        """Make progress; return False when more text is needed."""
        match self._state:
            case _State.START:
                return self._at_start()
            case _State.REASONING:
                return self._in_reasoning()
            case _State.GAP:
                return self._in_gap()
            case _State.ANSWER:
                return self._in_answer()
            case _State.TAIL:
                return self._in_tail()
            case _State.OVER:
                self._parsed += Parsed(text=self._buffer)
                self._buffer = ""
                return False

    def _at_start(self) -> bool:
        stripped = self._buffer.lstrip()
        if not stripped:
            return False
        openings = () if self._has_tokens else self._form.openings
        for opening in openings:
            if stripped.startswith(opening):
                self._buffer = stripped[len(opening) :]
                self._state = _State.REASONING
                return True
        answer_tag = "" if self._form.answer_tags is None else self._form.answer_tags[0]
        if answer_tag and stripped.startswith(answer_tag):
            self._state = _State.GAP
            return True
        if any(mark.startswith(stripped) for mark in (*openings, answer_tag)):
            return False
        self._state = _State.OVER
        return True

    def _in_reasoning(self) -> bool:
        if self._has_tokens:
            self._reason(self._buffer)
            self._buffer = ""
            return False
        found = [(at, mark) for mark in self._form.closings if (at := self._buffer.find(mark)) >= 0]
        if found:
            at, closing = min(found)
            self._end_reasoning(self._buffer[:at], self._buffer[at + len(closing) :])
            return True
        num_safe = len(self._buffer) - max(num_started(self._buffer, mark) for mark in self._form.closings)
        self._reason(self._buffer[:num_safe])
        self._buffer = self._buffer[num_safe:]
        return False

    def _end_reasoning(self, last: str, rest: str) -> None:
        self._reason(last)
        self._buffer = rest
        self._state = _State.GAP

    def _in_gap(self) -> bool:
        self._buffer = self._buffer.lstrip()
        if not self._buffer:
            return False
        if self._form.answer_tags is None:
            self._state = _State.OVER
            return True
        opening = self._form.answer_tags[0]
        if opening.startswith(self._buffer) and self._buffer != opening:
            return False
        if self._buffer.startswith(opening):
            self._buffer = self._buffer[len(opening) :]
            self._state = _State.ANSWER
        else:
            self._state = _State.OVER
        return True

    def _in_answer(self) -> bool:
        assert self._form.answer_tags is not None, "only a tagged answer has this state"
        closing = self._form.answer_tags[1]
        found = self._buffer.find(closing)
        if found < 0:
            num_safe = len(self._buffer) - num_started(self._buffer, closing)
            self._parsed += Parsed(text=self._buffer[:num_safe])
            self._buffer = self._buffer[num_safe:]
            return False
        self._parsed += Parsed(text=self._buffer[:found])
        self._buffer = self._buffer[found + len(closing) :]
        self._state = _State.TAIL
        return True

    def _in_tail(self) -> bool:
        self._buffer = self._buffer.lstrip()
        if not self._buffer:
            return False
        self._state = _State.OVER
        return True

    def _reason(self, text: str) -> None:
        """Add to the reasoning, except for white space at its end, which waits until more text follows."""
        pending = self._spaces + text
        shown = pending.rstrip()
        self._spaces = pending[len(shown) :] if shown or self._has_reasoning else ""
        if shown:
            self._parsed += Parsed(reasoning=shown if self._has_reasoning else shown.lstrip())
            self._has_reasoning = True

    def _take(self) -> Parsed:
        parsed, self._parsed = self._parsed, Parsed()
        return parsed
