"""Base of the parsers of tool calls: text shown without the white space around calls, and the calls found so far."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.frontend.tools.tool_format import MakeId


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDelta:
    """Piece of a tool call: its id and name first, then its arguments as text."""

    index: int
    """Position of the call in the answer, from 0."""
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """Text, tool calls and reasoning found in a piece of the answer."""

    text: str = ""
    calls: tuple[CallDelta, ...] = ()
    reasoning: str = ""

    def __add__(self, after: Parsed) -> Parsed:
        """Return both pieces as one."""
        return Parsed(self.text + after.text, self.calls + after.calls, self.reasoning + after.reasoning)


class CallScanner:
    """Base of the parsers of tool calls."""

    def __init__(self, names: Collection[str], make_id: MakeId, max_calls: int | None) -> None:
        self._names = names
        self._make_id = make_id
        self._max_calls = max_calls
        self._spaces = ""
        """White space held back; it is dropped before a call."""
        self._text: list[str] = []
        self._calls: list[CallDelta] = []
        self.num_calls = 0

    @property
    def has_limit(self) -> bool:
        """True if the number of calls is limited."""
        return self._max_calls is not None

    @property
    def is_full(self) -> bool:
        """True if the last allowed call is complete; later text is ignored."""
        return self.num_calls == self._max_calls and not self._is_inside_call

    def feed(self, text: str) -> Parsed:
        """Parse more of the answer."""
        raise NotImplementedError

    def finish(self) -> Parsed:
        """Parse the end of the answer; unparsed text becomes text or a truncated call."""
        raise NotImplementedError

    @property
    def _is_inside_call(self) -> bool:
        """True if the text so far ends inside a call."""
        raise NotImplementedError

    def _begin(self, name: str) -> None:
        self._spaces = ""
        self._calls.append(CallDelta(index=self.num_calls, id=self._make_id(), name=name))
        self.num_calls += 1

    def _add_arguments(self, text: str) -> None:
        if text:
            self._calls.append(CallDelta(index=self.num_calls - 1, arguments=text))

    def _show(self, text: str) -> None:
        """Show text. White space at its end, or before any text, waits until more text follows."""
        pending = self._spaces + text
        shown = pending.rstrip()
        self._spaces = pending[len(shown) :]
        if shown:
            self._text.append(shown)

    def _show_last_spaces(self) -> None:
        """Show the white space held back at the end of an answer without calls."""
        if not self.num_calls:
            self._text.append(self._spaces)
        self._spaces = ""

    def _take(self) -> Parsed:
        parsed = Parsed("".join(self._text), tuple(self._calls))
        self._text, self._calls = [], []
        return parsed


def num_started(text: str, marker: str) -> int:
    """Return the length of the longest suffix of the text that is a proper prefix of the marker."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if marker.startswith(text[len(text) - length :]):
            return length
    return 0
