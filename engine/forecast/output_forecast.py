"""How long outputs will get: a running mean of finished ones, bounded by what each request allows."""

from __future__ import annotations

from engine.protocol import Lane


class OutputForecast:
    """Expected output tokens per lane; deliberately simple, fed with every sequence that ended by itself."""

    def __init__(self, *, prior_tokens: float = 128.0, weight: float = 0.05, headroom_ratio: float = 1.25) -> None:
        self._prior_tokens = prior_tokens
        self._weight = weight
        self._headroom_ratio = headroom_ratio
        self._means: dict[Lane, float] = {}

    def observe(self, lane: Lane, num_output_tokens: int) -> None:
        """Learn from a sequence that ended with `stop` or `length`."""
        mean = self._means.get(lane, float(num_output_tokens))
        self._means[lane] = mean + self._weight * (num_output_tokens - mean)

    def mean_tokens(self, lane: Lane) -> float:
        """Mean output length lately; the prior until anything ended."""
        return self._means.get(lane, self._prior_tokens)

    def remaining_tokens(self, lane: Lane, num_output_tokens: int, max_tokens: int) -> int:
        """Tokens to keep blocks for: what a sequence is expected to add, with headroom; never more than it may."""
        return self._remaining(self._headroom_ratio * self.mean_tokens(lane), lane, num_output_tokens, max_tokens)

    def expected_tokens(self, lane: Lane, num_output_tokens: int, max_tokens: int) -> int:
        """Tokens a sequence is expected to add, without headroom; never more than it may."""
        return self._remaining(self.mean_tokens(lane), lane, num_output_tokens, max_tokens)

    def _remaining(self, length: float, lane: Lane, num_output_tokens: int, max_tokens: int) -> int:
        """One that outlived the forecast is expected to go on for a quarter of the mean."""
        expected = max(length - num_output_tokens, 0.25 * self.mean_tokens(lane), 1.0)
        return min(int(expected), max_tokens - num_output_tokens)
