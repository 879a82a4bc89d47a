"""Recent arrival rates of work by lane, which decide how much overtakes a waiting request. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.protocol import Lane
from engine.scheduler.lanes import LANES


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalRate:
    """Arrival rate of one lane."""

    sequences_per_s: float
    prompt_tokens_per_s: float
    """Prompt tokens per second, without those that the prefix cache is expected to hold."""


@dataclass(slots=True)
class _Sums:
    """Decayed up to `at`."""

    at: float | None = None
    num_sequences: float = 0.0
    num_tokens: float = 0.0

    def decay(self, now: float, window_s: float) -> None:
        if self.at is not None and now > self.at:
            retained = math.exp((self.at - now) / window_s)
            self.num_sequences *= retained
            self.num_tokens *= retained
        self.at = now if self.at is None else max(self.at, now)


class Arrivals:
    """Exponentially weighted rates; the older an arrival, the less it counts."""

    def __init__(self, *, window_s: float = 10.0) -> None:
        self._window_s = window_s
        self._sums = {lane: _Sums() for lane in LANES}
        self._first_at: float | None = None

    def observe(self, lane: Lane, num_prompt_tokens: int, now: float) -> None:
        """Record a sequence that was queued for the first time."""
        if self._first_at is None:
            self._first_at = now
        sums = self._sums[lane]
        sums.decay(now, self._window_s)
        sums.num_sequences += 1.0
        sums.num_tokens += num_prompt_tokens

    def rates(self, now: float) -> dict[Lane, ArrivalRate]:
        """Return the rate of every lane; a short history counts as one second at least."""
        age_s = max(1.0, now - self._first_at) if self._first_at is not None else 1.0
        # What a steady rate of 1/s has summed up to after this long.
        norm = self._window_s * (1.0 - math.exp(-age_s / self._window_s))
        rates: dict[Lane, ArrivalRate] = {}
        for lane, sums in self._sums.items():
            sums.decay(now, self._window_s)
            rates[lane] = ArrivalRate(
                sequences_per_s=sums.num_sequences / norm, prompt_tokens_per_s=sums.num_tokens / norm
            )
        return rates
