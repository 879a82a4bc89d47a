"""AdaptiveLimit: the work of one lane that a deployment takes before it begins to queue.

The limit compares each TTFT with its value on an unqueued deployment. When the sum over a window exceeds that by more
than a tolerance, the deployment queues. The limit then shrinks by the ratio, at most to half at once. Otherwise it
grows by about the square root of the requests it allows. That is Little's law with a small standing queue; Netflix's
Gradient2 has the same form. Whole answers are never compared, because clients choose their length.

The limit does not grow while less than half of it is used, because then it did not hold back any request. It shrinks
from the work in flight, and not for a few requests that were slow by themselves. A request sent before the last change
is not counted, so a queue that drains slowly is not answered twice. The limit never probes by admitting nothing, and it
never falls below one request. Until a queue was observed, only the initial number of requests limits.
"""

from __future__ import annotations

import math
from typing import Final

TOLERANCE: Final = 1.5
"""Multiple of the unqueued TTFT that does not count as queueing."""
SLACK_S: Final = 0.02
"""Seconds beyond that which count as noise."""
MIN_GRADIENT: Final = 0.5
GROWTH: Final = 0.2
SHRINKAGE: Final = 0.25
"""Share of the way to its new value that the limit moves down at once; GROWTH is the factor of its growth."""
USED: Final = 0.5
"""Share of the limit that must have been in flight for it to grow."""
MIN_CROWD: Final = 4
"""Number of requests in flight below which a slow first token is no sign of a queue."""
CAREFUL: Final = 0.01
"""Factor of growth soon after a queue."""
NEAR_WALL: Final = 0.8
CAREFUL_S: Final = 4.0
"""Seconds in which that caution fades by a factor of e."""
MEAN_SHARE: Final = 0.1
"""Weight of one request in the mean size of requests."""
WINDOW_S: Final = 0.1
MIN_SAMPLES: Final = 8
MAX_WINDOW_S: Final = 2.0
"""Seconds after which a window with few samples closes."""


class _Window:
    """TTFTs compared over a short time."""

    __slots__ = ("_expected_s", "_measured_s", "_num", "_since", "peak")

    def __init__(self) -> None:
        self._since = 0.0
        self._num = 0
        self._measured_s = 0.0
        self._expected_s = 0.0
        self.peak = 0.0
        """Maximum number of tokens in flight."""

    def add(self, now: float, measured_s: float, expected_s: float, tokens_out: int) -> bool:
        """Add a sample; return True when the window is full."""
        if self._num == 0:
            self._since = now
            self.peak = self._measured_s = self._expected_s = 0.0
        self._num += 1
        self._measured_s += measured_s
        self._expected_s += expected_s
        if tokens_out > self.peak:
            self.peak = float(tokens_out)
        age_s = now - self._since
        return (self._num >= MIN_SAMPLES and age_s >= WINDOW_S) or age_s >= MAX_WINDOW_S

    def close(self, slack_s: float) -> float:
        """Return the gradient, 1.0 when no sample was late, and start a new window."""
        allowed_s = TOLERANCE * self._expected_s + self._num * slack_s
        self._num = 0
        return min(max(allowed_s / max(self._measured_s, 1e-9), MIN_GRADIENT), 1.0)


class AdaptiveLimit:
    """Limit in tokens of work; time and events are passed in, and the Limiter enforces it."""

    __slots__ = ("_changed_at", "_mean_tokens", "_others", "_own", "_wall", "slack_s", "start", "value")

    def __init__(self, *, start: int | None = None, slack_s: float = SLACK_S) -> None:
        """Create a limit that has observed no queue.

        Args:
            start: Number of requests allowed until then; None for any number.
            slack_s: Seconds of queueing in the deployment that are tolerated.
        """
        self.start = start
        self.slack_s = slack_s
        """Seconds of queueing in the deployment that are tolerated."""
        self.value: float | None = None
        """Limit in tokens; None until a queue was observed."""
        self._mean_tokens = 0.0
        self._changed_at = -math.inf
        self._wall = math.inf
        """Limit at which the last queue began."""
        self._own = _Window()
        self._others = _Window()

    def allows(self, in_flight: int, tokens_out: int) -> bool:
        """Return whether one more request may start; the last one may exceed the limit in part."""
        if self.value is None:
            return self.start is None or in_flight < self.start
        return tokens_out < self.value

    def requests(self) -> int | None:
        """Return the limit in requests of mean size, at least 1; None for any number."""
        if self.value is None:
            return self.start
        return max(1, round(self.value / max(self._mean_tokens, 1.0)))

    def excess(self, tokens_out: int) -> float:
        """Return the number of mean-sized requests that must end before one more may start."""
        return 0.0 if self.value is None else max(tokens_out - self.value, 0.0) / max(self._mean_tokens, 1.0)

    def note_size(self, tokens: int) -> None:
        """Record the size of a request that starts."""
        self._mean_tokens += (tokens - self._mean_tokens) * (MEAN_SHARE if self._mean_tokens else 1.0)

    def note_ttft(self, now: float, measured_s: float, expected_s: float, tokens_out: int) -> None:
        """Learn from a TTFT of this lane, measured while `tokens_out` were in flight."""
        if now - measured_s < self._changed_at or not self._own.add(now, measured_s, expected_s, tokens_out):
            return
        peak = self._own.peak
        gradient = self._own.close(self.slack_s)
        if gradient < 1.0:
            if peak >= MIN_CROWD * self._mean_tokens:
                self.value = peak if self.value is None else min(self.value, peak)
                self._move(now, gradient)
        elif self._is_used(peak):
            self.value = peak if self.value is None else self.value
            self._move(now, gradient)

    def note_delayed(self, now: float, measured_s: float, expected_s: float, slack_s: float, tokens_out: int) -> None:
        """Learn from a TTFT of a lane of more weight, while `tokens_out` of this lane were in flight.

        The limit can only shrink by it.
        """
        if now - measured_s < self._changed_at or not self._others.add(now, measured_s, expected_s, tokens_out):
            return
        peak = self._others.peak
        gradient = self._others.close(slack_s)
        if gradient < 1.0:
            self.value = peak if self.value is None else min(self.value, peak)
            self._move(now, gradient)

    def _is_used(self, peak: float) -> bool:
        """Return whether so much was in flight that the limit may have held back requests."""
        if self.value is None:
            return self.start is not None and peak >= (self.start - 1) * self._mean_tokens
        return peak >= USED * self.value

    def _move(self, now: float, gradient: float) -> None:
        assert self.value is not None
        mean = max(self._mean_tokens, 1.0)
        if gradient < 1.0:
            self._changed_at = now
            self._wall = self.value
            self.value -= SHRINKAGE * (1.0 - gradient) * self.value
        else:
            self.value += self._growth(now) * max(math.sqrt(self.value * mean), mean)
        self.value = max(self.value, mean)

    def _growth(self, now: float) -> float:
        """Return the factor of growth, reduced near the last queue, so the limit settles below it."""
        assert self.value is not None
        if not NEAR_WALL * self._wall <= self.value <= self._wall:
            return GROWTH
        return min(CAREFUL * math.exp(min((now - self._changed_at) / CAREFUL_S, 10.0)), GROWTH)
