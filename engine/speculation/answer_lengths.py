"""How many tokens an answer will still say, told by how it began."""

from __future__ import annotations

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
        self._of_all: deque[int] = deque(maxlen=4 * _KEPT)
        self._by_first: dict[int, deque[int]] = {}

    def observe(self, first_token_id: int, num_tokens: int) -> None:
        """An answer ended after so many tokens, the one that ended it included."""
        self._of_all.append(num_tokens)
        lengths = self._by_first.get(first_token_id)
        if lengths is None:
            lengths = self._by_first[first_token_id] = deque(maxlen=_KEPT)
        lengths.append(num_tokens)

    def remaining(self, first_token_id: int | None, num_tokens: int, quantile: float = 0.5) -> float:
        """Tokens that are expected behind `num_tokens`; an answer that outlived its kind goes on for a part of it."""
        known = self._of_all if first_token_id is None else self._by_first.get(first_token_id, self._of_all)
        longer = sorted(length for length in known if length > num_tokens)
        if longer:
            return longer[int(quantile * len(longer))] - num_tokens
        return max(_PRIOR_TOKENS - num_tokens if not known else 0.0, _LEAST_RATIO * num_tokens, 1.0)
