"""Forecast of output lengths: a running mean of finished sequences, bounded by each request's limit."""

from __future__ import annotations

from engine.protocol import Lane


class OutputForecast:
    """Expected output tokens by lane, from every sequence that ended with `stop` or `length`."""

    def __init__(self, *, prior_tokens: float = 128.0, weight: float = 0.05, headroom_ratio: float = 1.25) -> None:
        self._prior_tokens = prior_tokens
        self._weight = weight
        self._headroom_ratio = headroom_ratio
        self._means: dict[Lane, float] = {}

    def observe(self, lane: Lane, num_output_tokens: int) -> None:
        """Add a sequence that ended with `stop` or `length`."""
        mean = self._means.get(lane, float(num_output_tokens))
        self._means[lane] = mean + self._weight * (num_output_tokens - mean)

    def mean_tokens(self, lane: Lane) -> float:
        """Return the recent mean output length; the prior until a sequence has ended."""
        return self._means.get(lane, self._prior_tokens)

    def remaining_tokens(self, lane: Lane, num_output_tokens: int, max_tokens: int) -> int:
        """Return the tokens to reserve blocks for: the expected ones with headroom, at most those allowed."""
        return self._remaining(self._headroom_ratio * self.mean_tokens(lane), lane, num_output_tokens, max_tokens)

    def expected_tokens(self, lane: Lane, num_output_tokens: int, max_tokens: int) -> int:
        """Return the expected number of further tokens, at most those allowed."""
        return self._remaining(self.mean_tokens(lane), lane, num_output_tokens, max_tokens)

    def _remaining(self, length: float, lane: Lane, num_output_tokens: int, max_tokens: int) -> int:
        """Return the rest of `length`; a sequence beyond the forecast is expected to add a quarter of the mean."""
        expected = max(length - num_output_tokens, 0.25 * self.mean_tokens(lane), 1.0)
        return min(int(expected), max_tokens - num_output_tokens)
