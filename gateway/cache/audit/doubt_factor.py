"""Doubt factor: how many wrong answers there are for each one that the shipped match model expects.

Audits give two numbers: the wrong answers found, and those expected, which is the sum of the audited answers' doubts.
Their limits hold at every instant at once, however often they are read and whatever the stream does (a Chernoff bound
on a supermartingale; Howard et al., 2020): for a fixed slope s > 0, with probability 1 - a,

    mean of the wrong answers  <=  (s x found + ln(1/a)) / (1 - exp(-s))    at all times.

The factor falls below 1 only as far as that limit proves. It rises with what was found, without waiting for proof. When
wrong answers come faster than a factor below 1 allows, the traffic has changed: a CUSUM test (Page, 1954) notices, and
older audits no longer count.
"""

from __future__ import annotations

import math
from typing import Final

from gateway.cache.audit.evidence import Sample

LEAST: Final = 0.2
"""Least factor: traffic may change faster than audits show."""
PRIOR_WRONG: Final = 2.0
"""Wrong answers, found as expected, that the factor starts from."""
MAX_AUDITS: Final = 1000
"""Audits after which all that was counted is halved, so that the factor follows the latest."""
MAX_FACTOR: Final = 100.0
_SLOPES: Final = (0.1, 0.3, 1.0, 3.0)
_SURPRISE: Final = math.log(len(_SLOPES) / 0.05)
"""ln(1/a): 5 % shared by the slopes."""
_CHANGE: Final = math.log(10.0)
"""CUSUM from which the traffic counts as changed."""


class DoubtFactor:
    """Wrong answers found by audits of the traffic as it is now, and expected. Constant time and memory."""

    __slots__ = ("_excess", "_num_audits", "expected", "factor", "num_changes", "num_wrong")

    def __init__(self) -> None:
        self.num_wrong = 0.0
        self.expected = 0.0
        self.factor = 1.0
        """Wrong answers for each one expected: what is proven below 1, or what was found above it."""
        self.num_changes = 0
        """Number of changes of the traffic."""
        self._num_audits = 0.0
        self._excess = 0.0
        """CUSUM of the log likelihood of the model's own doubt against the factor's."""

    def add(self, sample: Sample, replaced: Sample | None = None) -> None:
        """Add an audit, in order of time, or what a review has made of one."""
        if replaced is not None:
            self.num_wrong = max(0.0, self.num_wrong + sample.is_wrong - replaced.is_wrong)
        else:
            self._count(sample.is_wrong, 1.0 - sample.shipped_probability)
        self.factor = self._factor()

    def _count(self, is_wrong: bool, doubt: float) -> None:
        if self.factor < 1.0:
            self._excess = max(0.0, self._excess - is_wrong * math.log(self.factor) - doubt * (1.0 - self.factor))
        if self._excess >= _CHANGE:
            self.num_changes += 1
            self.num_wrong = self.expected = self._num_audits = self._excess = 0.0
            return
        self.num_wrong += is_wrong
        self.expected += doubt
        self._num_audits += 1.0
        if self._num_audits > MAX_AUDITS:  # the latest audits count most
            self.num_wrong, self.expected, self._num_audits = (
                self.num_wrong / 2,
                self.expected / 2,
                self._num_audits / 2,
            )

    def _factor(self) -> float:
        limit = upper_limit(self.num_wrong)
        if self.expected > limit:
            return max(LEAST, limit / self.expected)
        return min(MAX_FACTOR, max(1.0, (self.num_wrong + PRIOR_WRONG) / (self.expected + PRIOR_WRONG)))


def upper_limit(num_found: float) -> float:
    """Return the greatest mean that so many wrong answers allow: at all times at once, with 95 % confidence."""
    return min((slope * num_found + _SURPRISE) / -math.expm1(-slope) for slope in _SLOPES)
