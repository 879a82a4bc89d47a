"""Stop strings in a stream of text: found across token boundaries and never shown, not even in part."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Matcher of the stop string that ends first. The result does not depend on how the text is split."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._automata = [_Automaton(stop) for stop in stops]
        self._first_characters = frozenset(stop[0] for stop in stops)
        self._held = ""
        self.matched: str | None = None
        """Stop string that was found; None before."""

    def feed(self, text: str) -> str:
        """Return the text that is safe to show; a possible start of a stop string is held back."""
        if not self._automata or (not self._held and self._first_characters.isdisjoint(text)):
            return text
        held, self._held = self._held, ""
        pending = held + text
        for offset, character in enumerate(text, len(held)):
            ended = [found for automaton in self._automata if (found := automaton.step(character))]
            if ended:
                # Several may end here. The longest starts first, and no text after its start may be shown.
                self.matched = max(ended, key=len)
                return pending[: offset + 1 - len(self.matched)]
        num_held = max(automaton.state for automaton in self._automata)
        self._held = pending[len(pending) - num_held :]
        return pending[: len(pending) - num_held]

    def flush(self) -> str:
        """Return the held-back text at the end of a text without a stop string."""
        held, self._held = self._held, ""
        return held


class _Automaton:
    """Knuth-Morris-Pratt automaton of one stop string."""

    def __init__(self, stop: str) -> None:
        self._stop = stop
        self._fallback = _fallbacks(stop)
        self.state = 0
        """Length of the longest prefix of the stop string that the text ends with."""

    def step(self, character: str) -> str | None:
        """Advance by one character and return the stop string when it is complete."""
        state = self.state
        while state and self._stop[state] != character:
            state = self._fallback[state - 1]
        if self._stop[state] == character:
            state += 1
        if state == len(self._stop):
            self.state = 0
            return self._stop
        self.state = state
        return None


def _fallbacks(stop: str) -> list[int]:
    """Return, for each prefix of the stop string, the length of its longest proper suffix that is also a prefix."""
    fallbacks = [0] * len(stop)
    state = 0
    for i in range(1, len(stop)):
        while state and stop[state] != stop[i]:
            state = fallbacks[state - 1]
        if stop[state] == stop[i]:
            state += 1
        fallbacks[i] = state
    return fallbacks
