"""AdaptiveLimit: how much work of one lane a deployment takes before it begins to queue by itself.

Theory of operation. A request's time to first token is compared with what it takes where nothing is queued. When the
sum over a window exceeds that by more than a tolerance, the deployment queues, and the limit shrinks by the ratio,
never below half at once; otherwise it grows by about the square root of the requests it allows, which is Little's law
with a small standing queue (Netflix's Gradient2 has the same form). Whole answers are never compared: their length is
the client's choice.

It does not grow while less than half of it is used, for then it was not what held anybody back; it shrinks from what
was out, not from what might have been, and not for a few requests that were slow by themselves. A request sent before
the last change says nothing about it and is not counted, so that a queue that drains slowly is not answered twice. It
never probes by shutting everybody out, and it never falls below one request. Until a queue was seen there is no limit
but the number of requests it starts with.
"""

from __future__ import annotations

import math
from typing import Final

TOLERANCE: Final = 1.5
"""A first token may take so many times what it takes without a queue."""
SLACK_S: Final = 0.02
"""And so much longer: below it a difference is noise."""
MIN_GRADIENT: Final = 0.5
GROWTH: Final = 0.2
SHRINKAGE: Final = 0.25
"""How much of the way to its new value the limit goes at once, up and down."""
USED: Final = 0.5
"""It grows when at least so much of it was out."""
MIN_CROWD: Final = 4
"""With fewer requests out a slow first token is no sign of a queue."""
CAREFUL: Final = 0.01
"""The same where a queue began not long ago."""
NEAR_WALL: Final = 0.8
CAREFUL_S: Final = 4.0
"""Care wears off by a factor of e in so long."""
MEAN_SHARE: Final = 0.1
"""How much a request counts in the mean size of requests."""
WINDOW_S: Final = 0.1
MIN_SAMPLES: Final = 8
MAX_WINDOW_S: Final = 2.0
"""A window that got few samples closes after this."""


class _Window:
    """First tokens compared over a short time."""

    __slots__ = ("_expected_s", "_measured_s", "_num", "_since", "peak")

    def __init__(self) -> None:
        self._since = 0.0
        self._num = 0
        self._measured_s = 0.0
        self._expected_s = 0.0
        self.peak = 0.0
        """Most tokens that were out."""

    def add(self, now: float, measured_s: float, expected_s: float, tokens_out: int) -> bool:
        """Whether the window is full now."""
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
        """The gradient, 1.0 when nothing was late; the next sample begins anew."""
        allowed_s = TOLERANCE * self._expected_s + self._num * slack_s
        self._num = 0
        return min(max(allowed_s / max(self._measured_s, 1e-9), MIN_GRADIENT), 1.0)


class AdaptiveLimit:
    """In tokens of work. It is told the time and what happened; the Limiter enforces."""

    __slots__ = ("_changed_at", "_mean_tokens", "_others", "_own", "_wall", "slack_s", "start", "value")

    def __init__(self, *, start: int | None = None, slack_s: float = SLACK_S) -> None:
        """`start`: requests allowed before anything was learned, None for any number."""
        self.start = start
        self.slack_s = slack_s
        """Seconds of queue in the deployment that are nobody's concern."""
        self.value: float | None = None
        """Tokens; None until a queue was seen."""
        self._mean_tokens = 0.0
        self._changed_at = -math.inf
        self._wall = math.inf
        """Where the last queue began."""
        self._own = _Window()
        self._others = _Window()

    def allows(self, in_flight: int, tokens_out: int) -> bool:
        """Whether one more may go out beside what is out; the last one may exceed the limit by a part of itself."""
        if self.value is None:
            return self.start is None or in_flight < self.start
        return tokens_out < self.value

    def requests(self) -> int | None:
        """About how many requests the limit is worth, at least 1; None: any number."""
        if self.value is None:
            return self.start
        return max(1, round(self.value / max(self._mean_tokens, 1.0)))

    def excess(self, tokens_out: int) -> float:
        """About how many requests have to end before one more may go out."""
        return 0.0 if self.value is None else max(tokens_out - self.value, 0.0) / max(self._mean_tokens, 1.0)

    def note_size(self, tokens: int) -> None:
        """A request of `tokens` goes out."""
        self._mean_tokens += (tokens - self._mean_tokens) * (MEAN_SHARE if self._mean_tokens else 1.0)

    def note_ttft(self, now: float, measured_s: float, expected_s: float, tokens_out: int) -> None:
        """A first token of this lane came `measured_s` after its request was sent, while `tokens_out` were out."""
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
        """A first token of a lane of more weight came while `tokens_out` of this lane were out; can only shrink."""
        if now - measured_s < self._changed_at or not self._others.add(now, measured_s, expected_s, tokens_out):
            return
        peak = self._others.peak
        gradient = self._others.close(slack_s)
        if gradient < 1.0:
            self.value = peak if self.value is None else min(self.value, peak)
            self._move(now, gradient)

    def _is_used(self, peak: float) -> bool:
        """Whether so much was out that the limit may have been in the way."""
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
        """Less where a queue began not long ago, so that the limit stays below it instead of running into it again."""
        assert self.value is not None
        if not NEAR_WALL * self._wall <= self.value <= self._wall:
            return GROWTH
        return min(CAREFUL * math.exp(min((now - self._changed_at) / CAREFUL_S, 10.0)), GROWTH)
