"""AuditEvidence: what audits found about one tenant's route, and the error ratio that follows from it.

A served hit is audited with a probability of its own and stands for 1/probability of them (Horvitz and Thompson, 1952).
Audits that were skipped leave gaps, so the weights are scaled up to the hits that there were, which is Hájek's ratio.
The interval is Wilson's (1927), for as many audits as the weights are worth (Kish, 1965).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from gateway.util.bounded_dict import Recent

WINDOW_S: Final = 24 * 3600.0
MAX_SAMPLES: Final = 4096
BUCKET_S: Final = 600.0
"""Length of the spans in which requests are counted."""
_Z: Final = 1.959964
"""Quantile of the normal distribution for a 95 % interval."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One response that was compared with a new one."""

    id: str
    at: float
    """Seconds since 1970."""
    match_probability: float
    """Match probability by the model of that time."""
    shipped_probability: float
    """Match probability by the shipped model, before anything was learnt from this route's audits."""
    weight: float
    """Hits that the sample stands for: one over the probability of its audit."""
    is_wrong: bool
    was_served: bool
    """True if the answer was served; False: it was only compared, and a lower threshold would have served it."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Wrong responses over all requests, with the limits of a 95 % interval."""

    ratio: float
    low: float
    high: float
    num_audited: int
    num_wrong: int
    num_requests: int
    num_hits: int


class LookupTraffic(msgspec.Struct, gc=False):
    """Requests of one span with a semantic lookup, and hits."""

    num_requests: int = 0
    num_hits: int = 0


class AuditEvidence:
    """Samples and counts of requests. Bounded; time is passed in; `source` names the process that counted."""

    __slots__ = ("_samples", "_traffic")

    def __init__(self) -> None:
        self._samples: Recent[str, Sample] = Recent(MAX_SAMPLES)
        self._traffic: dict[tuple[str, int], LookupTraffic] = {}

    def note_request(self, now: float, *, source: str = "") -> None:
        """Count a request with a semantic lookup."""
        self.traffic(now, source).num_requests += 1

    def note_hit(self, now: float, *, source: str = "") -> None:
        """Count a semantic hit."""
        self.traffic(now, source).num_hits += 1

    def traffic(self, now: float, source: str = "") -> LookupTraffic:
        """Return the counts of the span that holds `now`."""
        key = source, int(now // BUCKET_S)
        found = self._traffic.get(key)
        if found is None:
            found = self._traffic[key] = LookupTraffic()
        return found

    def set_traffic(self, source: str, bucket: int, traffic: LookupTraffic) -> None:
        """Take the counts of another process."""
        self._traffic[source, bucket] = traffic

    def add(self, sample: Sample) -> Sample | None:
        """Add a sample in place of an earlier one of its id, which is returned."""
        replaced = self._samples.get(sample.id)
        self._samples[sample.id] = sample
        return replaced

    def expire(self, now: float) -> None:
        """Forget what is older than the window."""
        for key in [key for key, sample in self._samples.items() if sample.at < now - WINDOW_S]:
            del self._samples[key]
        oldest = int((now - WINDOW_S) // BUCKET_S)
        for span in [span for span in self._traffic if span[1] < oldest]:
            del self._traffic[span]

    @property
    def samples(self) -> Iterable[Sample]:
        """All samples, oldest first."""
        return self._samples.values()

    @property
    def num_requests(self) -> int:
        """Requests in the window."""
        return sum(traffic.num_requests for traffic in self._traffic.values())

    @property
    def num_hits(self) -> int:
        """Hits in the window."""
        return sum(traffic.num_hits for traffic in self._traffic.values())

    def served(self) -> Estimate:
        """Estimate the error ratio of what was served."""
        samples = [sample for sample in self._samples.values() if sample.was_served]
        return _estimate(samples, float(self.num_hits), self.num_requests)

    def above(self, threshold: float) -> Estimate:
        """Estimate the error ratio if everything of at least this match probability were served."""
        samples = [sample for sample in self._samples.values() if sample.match_probability >= threshold]
        return _estimate(samples, None, self.num_requests, self._gap())

    def _gap(self) -> float:
        """Return the hits for each hit that audits stand for; at least 1."""
        stood_for = sum(sample.weight for sample in self._samples.values() if sample.was_served)
        return max(1.0, self.num_hits / stood_for) if stood_for else 1.0


def wilson(ratio: float, count: float) -> tuple[float, float]:
    """Return the 95 % limits of a share found in `count` trials; (0, 1) without any."""
    if count <= 0:
        return 0.0, 1.0
    z2 = _Z * _Z
    middle = (ratio + z2 / (2 * count)) / (1 + z2 / count)
    half = _Z / (1 + z2 / count) * math.sqrt(ratio * (1 - ratio) / count + z2 / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def _estimate(samples: list[Sample], num_hits: float | None, num_requests: int, gap: float = 1.0) -> Estimate:
    """Estimate from samples that stand for `gap` times their weight; `num_hits` None: as many as they stand for."""
    weights = [sample.weight * gap if sample.was_served else sample.weight for sample in samples]
    total = sum(weights)
    wrong = sum([weight for weight, sample in zip(weights, samples, strict=True) if sample.is_wrong])
    squares = sum([weight * weight for weight in weights])
    if num_hits is None:
        num_hits = total
    share = min(1.0, num_hits / num_requests) if num_requests else 0.0
    ratio = wrong / total if total else 0.0
    low, high = wilson(ratio, total * total / squares if squares else 0.0)
    return Estimate(
        ratio=ratio * share,
        low=low * share,
        high=high * share,
        num_audited=len(samples),
        num_wrong=sum([sample.is_wrong for sample in samples]),
        num_requests=num_requests,
        num_hits=round(num_hits),
    )
