"""How many tokens an answer will still say, told by how it began."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque

_KEPT = 16
_PRIOR_TOKENS = 32
_LEAST_RATIO = 0.5


class AnswerLengths:
    """Lengths of recent answers that began with the same token, or of all where that token is new.

    Of those that got as long as this one a quantile counts: what is expected shall hold for most answers, not be
    stretched by a few long ones.
    """

    def __init__(self) -> None:
        self._of_all = _Lengths(4 * _KEPT)
        self._by_first: dict[int, _Lengths] = {}

    def observe(self, first_token_id: int, num_tokens: int) -> None:
        """An answer ended after so many tokens, the one that ended it included."""
        self._of_all.add(num_tokens)
        lengths = self._by_first.get(first_token_id)
        if lengths is None:
            lengths = self._by_first[first_token_id] = _Lengths(_KEPT)
        lengths.add(num_tokens)

    def remaining(self, first_token_id: int | None, num_tokens: int, quantile: float = 0.5) -> float:
        """Tokens that are expected behind `num_tokens`; an answer that outlived its kind goes on for a part of it."""
        known = self._of_all if first_token_id is None else self._by_first.get(first_token_id, self._of_all)
        in_order = known.in_order
        num_shorter = bisect_right(in_order, num_tokens)
        if num_shorter < len(in_order):
            return in_order[num_shorter + int(quantile * (len(in_order) - num_shorter))] - num_tokens
        return max(_PRIOR_TOKENS - num_tokens if not in_order else 0.0, _LEAST_RATIO * num_tokens, 1.0)


class _Lengths:
    """The last few lengths, in order: asked for in every step, added to once an answer."""

    __slots__ = ("_recent", "in_order")

    def __init__(self, num_kept: int) -> None:
        self._recent: deque[int] = deque(maxlen=num_kept)
        self.in_order: list[int] = []

    def add(self, length: int) -> None:
        recent, in_order = self._recent, self.in_order
        if len(recent) == recent.maxlen:
            del in_order[bisect_left(in_order, recent[0])]
        recent.append(length)
        insort(in_order, length)
