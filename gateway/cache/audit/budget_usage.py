"""BudgetUsage: the threshold at which recent lookups would use the error budget, and what hits have used of it.

The expected errors of a threshold are the doubts (1 - probability) of the recent lookups above it. The threshold is the
lowest one whose expected errors fit the budget, so it follows the traffic in both directions: a fuller cache finds
more, and a threshold that was right for an empty one would then spend too much.
"""

from __future__ import annotations

import math
from typing import Final

from gateway.util.bounded_dict import Recent
from routing_policies.estimation.boosted_trees import logistic, logit

MEMORY: Final = 10_000
"""Time constant of the sums, in requests."""
LATEST: Final = 500
"""Time constant, in requests, of the hits that a change of the traffic does not forget: they came before it showed."""
BEGINNING: Final = 1_000
"""Requests after which the threshold follows the traffic; the served doubt begins with as many."""
RAISED_FROM: Final = 1.0
RAISED_TO: Final = 1.2
"""Used parts of the budget between which the threshold rises, until nothing is served."""
MAX_PAIRS: Final = 10_000
NUM_BINS: Final = 200
"""Bins of log odds: a recalibrated model may give all probabilities near 1. A threshold is the lower edge of a bin."""
LOWEST_ODDS: Final = -4.0
BIN_WIDTH: Final = 0.08

_EDGE: Final = 1e-9
_FADED_AT_ONCE: Final = 50
_FADE: Final = (1.0 - 1.0 / MEMORY) ** _FADED_AT_ONCE
_LATEST_FADE: Final = (1.0 - 1.0 / LATEST) ** _FADED_AT_ONCE
_Z: Final = 2.326
"""Quantile of the normal distribution for 99 %, one side: wrong answers come in groups, so 95 % takes a reserve."""


def usable_share(max_error_ratio: float) -> float:
    """Return the share of a bound that expected errors may use.

    The rest is a reserve: with 99 % probability, Poisson errors of that mean stay within the bound over `MEMORY`
    requests.
    """
    allowed = max_error_ratio * MEMORY
    return ((math.sqrt(_Z * _Z + 4.0 * allowed) - _Z) / 2.0) ** 2 / allowed


class BudgetUsage:
    """Recent lookups by match probability, and expected errors of hits. Bounded; belongs to one event loop."""

    __slots__ = (
        "_counts",
        "_doubts",
        "_given",
        "_latest_doubt",
        "_num_requests",
        "_requests",
        "_served_doubt",
        "_served_requests",
    )

    def __init__(self) -> None:
        self._clear_lookups()
        self._served_doubt = self._latest_doubt = 0.0
        self._served_requests = float(BEGINNING)
        self._given: Recent[tuple[bytes, bytes], None] = Recent(MAX_PAIRS)
        """Pairs that were served: the same pair once more is no new risk, and audited soon."""

    def _clear_lookups(self) -> None:
        self._counts = [0.0] * NUM_BINS
        self._doubts = [0.0] * NUM_BINS
        self._num_requests = 0
        self._requests = 0.0

    def note_request(self) -> None:
        """Count a request."""
        self._num_requests += 1
        self._requests += 1.0
        self._served_requests += 1.0
        if self._num_requests % _FADED_AT_ONCE == 0:
            self._counts = [count * _FADE for count in self._counts]
            self._doubts = [doubt * _FADE for doubt in self._doubts]
            self._requests *= _FADE
            self._served_doubt *= _FADE
            self._latest_doubt *= _LATEST_FADE
            self._served_requests *= _FADE

    def note_lookup(self, match_probability: float, doubt: float, *, is_given: bool) -> None:
        """Count a lookup that found an entry, served or not; a pair that was served before adds no doubt."""
        place = _bin_of(match_probability)
        self._counts[place] += 1.0
        if not is_given:
            self._doubts[place] += doubt

    def note_served(self, prompt: bytes, cached: bytes, doubt: float) -> None:
        """Count the hit of question `prompt` on entry `cached`."""
        if not self.is_given(prompt, cached):
            self._served_doubt += doubt
            self._latest_doubt += doubt
            self._given[prompt, cached] = None

    def is_given(self, prompt: bytes, cached: bytes) -> bool:
        """Return whether this pair was served before."""
        return (prompt, cached) in self._given

    def threshold(self, max_error_ratio: float, factor: float = 1.0) -> float | None:
        """Return the lowest threshold whose expected errors fit the budget; None before there was enough traffic.

        Args:
            max_error_ratio: The bound.
            factor: Wrong answers for each expected one.
        """
        if self._num_requests < BEGINNING:
            return None
        left = self._requests * usable_share(max_error_ratio) * max_error_ratio / factor
        for place in range(NUM_BINS - 1, -1, -1):
            left -= self._doubts[place]
            if left < 0.0:
                return _lower_edge(place + 1)
        return 0.0

    def hit_ratio(self, threshold: float) -> float | None:
        """Return the share of recent requests whose lookup reaches a threshold; None without requests."""
        if not self._num_requests:
            return None
        if threshold > 1.0:
            return 0.0
        return min(1.0, sum(self._counts[_bin_of(threshold + _EDGE) :]) / self._requests)

    def restart(self) -> None:
        """Forget the lookups, which were about other traffic, and all hits but those of the last requests."""
        self._clear_lookups()
        self._served_doubt, self._served_requests = self._latest_doubt, float(BEGINNING)

    def raised(self, threshold: float, max_error_ratio: float, factor: float = 1.0) -> float:
        """Return the threshold for pairs that were not served before, where recent hits have used the budget."""
        if threshold >= 1.0:
            return threshold
        used = self._served_doubt * factor / (self._served_requests * usable_share(max_error_ratio) * max_error_ratio)
        step = min(1.0, max(0.0, (used - RAISED_FROM) / (RAISED_TO - RAISED_FROM)))
        return threshold + (1.0 - threshold) * step


def _bin_of(match_probability: float) -> int:
    odds = logit(min(1.0 - _EDGE, max(_EDGE, match_probability)))
    return min(NUM_BINS - 1, max(0, int((odds - LOWEST_ODDS) / BIN_WIDTH)))


def _lower_edge(place: int) -> float:
    return 1.0 if place >= NUM_BINS else logistic(LOWEST_ODDS + place * BIN_WIDTH)
