"""What earlier answers said next in the same place: the parts of answers that do not stand in the prompt.

Answers of one kind resemble each other (the keys of a JSON object, how a sentence begins), and a text is cheaper to
remember than to say. (Compare G. Oliaro et al., "SuffixDecoding", 2024, which keeps whole suffix trees.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SIZES = (5, 3, 2, 1)
LONGEST_STREAK = 4
_STREAKS = LONGEST_STREAK + 1


class Remembered(NamedTuple):
    """What stood behind the newest tokens last."""

    token_id: int
    size: int
    """How many newest tokens it was remembered behind."""
    streak: int
    """How many times in succession it stood there, up to `LONGEST_STREAK`; 0: last time it took another's place."""


class AnswerMemory:
    """Next tokens behind runs of one to five tokens of answers; bounded, the longest unused is forgotten first.

    A salt shares nothing with another one, so nobody's answers speed up a stranger's. Keys are hashes: a collision
    makes a wrong draft at worst.
    """

    def __init__(self, capacity: int = 1 << 17) -> None:
        """`capacity`: most runs that are remembered, some 100 bytes each."""
        self._capacity = capacity // 2
        # What is young is looked up first; when it is full it becomes old, and what was old is forgotten.
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def learn(self, salt: bytes, before: Sequence[int], said: Sequence[int]) -> None:
        """An answer went on with the tokens `said` behind at least `SIZES[0]` tokens, if there were so many."""
        text = [*before, *said]
        for place in range(len(before), len(text)):
            token_id = text[place]
            for size in SIZES:
                if size <= place:
                    self._note(hash((salt, *text[place - size : place])), token_id)
        if len(self._young) >= self._capacity:
            self._old, self._young = self._young, {}

    def recall(self, salt: bytes, newest: Sequence[int]) -> Remembered | None:
        """What was said behind the longest run of newest tokens that is known; None: nothing."""
        young, old = self._young, self._old
        for size in SIZES:
            if size <= len(newest):
                key = hash((salt, *newest[-size:]))
                entry = young.get(key)
                if entry is None and old:
                    entry = old.get(key)
                if entry is not None:
                    return Remembered(entry // _STREAKS, size, entry % _STREAKS)
        return None

    def _note(self, key: int, token_id: int) -> None:
        entry = self._young.get(key)
        if entry is None:
            entry = self._old.get(key)
        if entry is None:
            self._young[key] = token_id * _STREAKS + 1
        elif entry // _STREAKS != token_id:
            self._young[key] = token_id * _STREAKS
        else:
            self._young[key] = min(entry + 1, token_id * _STREAKS + LONGEST_STREAK)
