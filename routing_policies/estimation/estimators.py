"""Small online models. Pure: instants and durations are arguments, and nothing is random."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from typing import Final

import msgspec

from routing_policies.policy.deployment import CostPerMtok

OUTPUT_WEIGHT: Final = 2.0
"""Work of one generated token, in prompt tokens: a prompt is read many tokens at a time, an answer is not."""


class Price(msgspec.Struct, frozen=True, gc=False):
    """Estimated tokens of one request: the gateway does not tokenize, and an answer's length is unknown beforehand."""

    prompt_tokens: int
    uncached_tokens: int
    """Prompt tokens whose keys and values no deployment is expected to hold; at least 1."""
    output_tokens: int
    """Forecast over all choices, never above what the client allows."""

    @property
    def work_tokens(self) -> int:
        """Uncached prompt and weighted output: what shares between tenants and adaptive limits are counted in."""
        return self.uncached_tokens + int(OUTPUT_WEIGHT * self.output_tokens)

    @property
    def total_tokens(self) -> int:
        """Prompt and output, unweighted: what quotas are counted in."""
        return self.prompt_tokens + self.output_tokens


def cost_of(rates: CostPerMtok | None, price: Price) -> float | None:
    """Return the cost of the request at these rates, in the operator's currency; None without rates."""
    if rates is None:
        return None
    return (rates.prompt * price.prompt_tokens + rates.completion * price.output_tokens) / 1e6


_TINY: Final = 1e-9
TINY_BUSY_S: Final = _TINY
"""Busy time in seconds below which a rate is unknown."""

_BYTES_STORED: Final = 0.98
"""Share of the bytes-per-token statistics that each request keeps."""

_BOUNDS: Final = tuple(2 ** (step / 4) for step in range(4 * 20 + 1))
"""Upper bounds of the bins of answer lengths."""
_MIDDLES: Final = tuple(upper * 2 ** (-1 / 8) for upper in (*_BOUNDS, _BOUNDS[-1]))
"""Length that each bin represents."""
_NEW_PART: Final = 1.0 / 0.99 - 1.0
"""Weight of a new answer relative to all earlier ones, which fade."""
_REFRESH_EVERY: Final = 8
_MAX_MEANS: Final = 64


class BytesPerToken:
    """Bytes per prompt token for one tenant and model, learned from the engines' counts."""

    __slots__ = ("_bytes", "_cross", "_num", "_squares", "_tokens", "_weight")

    PRIOR: Final = 4.0
    """Bytes per token of English text, before any observation."""

    def __init__(self) -> None:
        self._weight = self._bytes = self._tokens = self._squares = self._cross = 0.0
        self._num = 0

    def observe(self, num_bytes: int, num_tokens: int) -> None:
        """Record a request of `num_bytes` that was counted as `num_tokens`; counts below 1 are ignored."""
        if num_bytes < 1 or num_tokens < 1:
            return
        decayed = _BYTES_STORED
        weight = 1.0 / num_tokens**2  # weights errors relative to the prompt
        self._weight = decayed * self._weight + weight
        self._bytes = decayed * self._bytes + weight * num_bytes
        self._tokens = decayed * self._tokens + weight * num_tokens
        self._squares = decayed * self._squares + weight * num_bytes * num_bytes
        self._cross = decayed * self._cross + weight * num_bytes * num_tokens
        self._num += 1

    def tokens(self, num_bytes: int) -> int:
        """Return the expected prompt tokens of a request of `num_bytes`, at least 1."""
        if self._num == 0:
            return round(num_bytes / self.PRIOR) or 1
        mean_bytes, mean_tokens = self._bytes / self._weight, self._tokens / self._weight
        spread = self._squares / self._weight - mean_bytes**2
        slope = mean_tokens / mean_bytes
        if spread > (0.05 * mean_bytes) ** 2:  # sizes differ enough for a template's fixed tokens to show
            fitted = (self._cross / self._weight - mean_bytes * mean_tokens) / spread
            if fitted > 4 * slope:
                slope *= 4
            else:
                slope = fitted if fitted > slope / 4 else slope / 4
        tokens = round(mean_tokens + slope * (num_bytes - mean_bytes))
        return tokens if tokens > 1 else 1


class OutputEstimate:
    """Lengths of answers, as a fading histogram with bounds a quarter of an octave apart."""

    __slots__ = ("_counts", "_filled", "_means", "_num_new", "_total")

    PRIOR_TOKENS: Final = 256.0
    """Length in tokens for a route without answers."""
    _PRIOR_WEIGHT: Final = 2.0

    def __init__(self) -> None:
        self._counts = [0.0] * (len(_BOUNDS) + 1)
        prior = bisect_left(_BOUNDS, self.PRIOR_TOKENS)
        self._counts[prior] = self._PRIOR_WEIGHT
        self._filled = [prior]
        """Indexes of the bins that are not 0, in order."""
        self._total = self._PRIOR_WEIGHT
        self._means: dict[int | None, int] = {}
        """Means by limit, at most a few answers old, because summing the histogram costs more than they change."""
        self._num_new = 0

    def observe(self, num_tokens: float) -> None:
        """Record an answer of `num_tokens`."""
        # Instead of fading every count, new ones weigh more; rescaled before the numbers overflow.
        weight = self._total * _NEW_PART
        if weight < 1.0:
            weight = 1.0
        place = bisect_left(_BOUNDS, num_tokens)  # less than one counts as one
        if not self._counts[place]:
            insort(self._filled, place)
        self._counts[place] += weight
        self._total += weight
        self._num_new += 1
        if self._num_new >= _REFRESH_EVERY or len(self._means) > _MAX_MEANS:
            self._num_new = 0
            self._means.clear()
        if self._total > 1e9:
            self._counts = [count / 1e9 for count in self._counts]
            self._filled = [place for place, count in enumerate(self._counts) if count]
            self._total /= 1e9

    def mean_tokens(self, limit: int | None) -> int:
        """Return the mean length of answers cut off at `limit`, at least 1."""
        known = self._means.get(limit)
        if known is None:
            known = self._means[limit] = self._mean_tokens(math.inf if limit is None else float(limit))
        return known

    def _mean_tokens(self, bound: float) -> int:
        total = 0.0
        counts = self._counts
        for place in self._filled:
            middle = _MIDDLES[place]
            total += counts[place] * (middle if middle < bound else bound)
        return max(1, round(total / self._total))


class PeakEwma:
    """Average that follows a rise at once and a fall slowly, so a deployment that was slow is avoided for a while."""

    __slots__ = ("_at", "_decay_s", "peak")

    def __init__(self, *, decay_s: float, value: float = 0.0) -> None:
        self._decay_s = decay_s
        self.peak = value
        """Average at the last measurement, an upper bound of `value`."""
        self._at = -math.inf

    def observe(self, now: float, value: float) -> None:
        """Adopt a measurement above the average; blend a lower one in by the time since the last."""
        if value >= self.peak:
            self.peak = value
        else:
            decayed = math.exp((self._at - now) / self._decay_s)
            self.peak = decayed * self.peak + (1.0 - decayed) * value
        self._at = now

    def value(self, now: float, floor: float = 0.0) -> float:
        """Return the average, decayed towards `floor` since the last measurement."""
        if self.peak <= floor:
            return self.peak
        return floor + (self.peak - floor) * math.exp((self._at - now) / self._decay_s)


class DrainRate:
    """Units per second that leave while something waits; idle time does not count."""

    __slots__ = ("_at", "_window_s", "busy_s", "units")

    def __init__(self, *, window_s: float) -> None:
        self._window_s = window_s
        self.units = 0.0
        """Decayed number of units that left; `busy_s` is the decayed busy time."""
        self.busy_s = 0.0
        self._at: float | None = None

    def start(self, now: float) -> None:
        """Begin busy time, unless it has begun."""
        if self._at is None:
            self._at = now

    def leave(self, now: float, units: float, *, is_last: bool) -> None:
        """Record `units` that left; `is_last` ends the busy time."""
        busy_s = 0.0 if self._at is None or now < self._at else now - self._at
        decayed = math.exp(-busy_s / self._window_s)
        self.units = decayed * self.units + units
        self.busy_s = decayed * self.busy_s + busy_s
        self._at = None if is_last else now

    @property
    def per_s(self) -> float | None:
        """Rate per second; None before anything left."""
        return self.units / self.busy_s if self.busy_s > TINY_BUSY_S else None


class ForecastError:
    """Relative errors |forecast - measured| / measured of the last forecasts; sorted only on demand."""

    __slots__ = ("_errors",)

    _WINDOW: Final = 512

    def __init__(self) -> None:
        self._errors: deque[float] = deque(maxlen=self._WINDOW)

    def observe(self, forecast: float, measured: float) -> None:
        """Add the error of one forecast."""
        self._errors.append(abs(forecast - measured) / (measured if measured > _TINY else _TINY))

    def quantile(self, share: float) -> float | None:
        """Return the error that `share` of the last forecasts stay within, or None before the first."""
        if not self._errors:
            return None
        ordered = sorted(self._errors)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
