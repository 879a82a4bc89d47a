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
from collections.abc import Iterable
from typing import Final

import msgspec

from gateway.cache.audit.evidence import Sample

LEAST: Final = 0.2
"""Least factor: traffic may change faster than audits show."""
PRIOR_WRONG: Final = 2.0
"""Wrong answers, found as expected, that the factor starts from."""
MAX_FACTOR: Final = 100.0
_SLOPES: Final = (0.1, 0.3, 1.0, 3.0)
_SURPRISE: Final = math.log(len(_SLOPES) / 0.05)
"""ln(1/a): 5 % shared by the slopes."""
_CHANGE: Final = math.log(10.0)
"""CUSUM from which the traffic counts as changed."""


class AuditTally(msgspec.Struct, frozen=True, gc=False):
    """Wrong answers among audits of the traffic as it is now."""

    num_wrong: int = 0
    expected: float = 0.0
    since: float = 0.0
    """Time of the last change of the traffic, in seconds since 1970; 0 without one."""

    @property
    def factor(self) -> float:
        """Return the factor: what is proven below 1, or what was found above it."""
        limit = upper_limit(self.num_wrong)
        if self.expected > limit:
            return max(LEAST, limit / self.expected)
        return min(MAX_FACTOR, max(1.0, (self.num_wrong + PRIOR_WRONG) / (self.expected + PRIOR_WRONG)))


def upper_limit(num_found: int) -> float:
    """Return the greatest mean that so many wrong answers allow: at all times at once, with 95 % confidence."""
    return min((slope * num_found + _SURPRISE) / -math.expm1(-slope) for slope in _SLOPES)


def tally_of(samples: Iterable[Sample]) -> AuditTally:
    """Count samples in order of time, from the last change of the traffic on."""
    now, excess = AuditTally(), 0.0
    for sample in samples:
        doubt = 1.0 - sample.shipped_probability
        factor = now.factor
        now = AuditTally(now.num_wrong + sample.is_wrong, now.expected + doubt, now.since)
        if factor < 1.0:  # log likelihood of the model's own doubt against the factor's
            excess = max(0.0, excess + sample.is_wrong * -math.log(factor) - doubt * (1.0 - factor))
        if excess >= _CHANGE:
            now, excess = AuditTally(since=sample.at), 0.0
    return now
