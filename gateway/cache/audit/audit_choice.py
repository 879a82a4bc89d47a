"""AuditChoice: which semantic hits are audited, and with what probability."""

from __future__ import annotations

from typing import Final

from gateway.cache.audit.error_budget import audit_probability
from gateway.cache.audit.route_stats import RouteStats
from gateway.util.fair_bounded_dict import FairRecent

MAX_EXPOSURES: Final = 3
"""Hits of one question on one entry until an audit is certain: what is frequent goes wrong often."""
MANY: Final = 100
"""Hits after an audit until the pair counts as frequent again."""
COMPARED_RATIO: Final = 5.0
"""Factor on `audit_ratio` for comparisons that cost no upstream call."""
MAX_PAIRS: Final = 10_000
"""Number of pairs whose hits are counted; beyond it, the tenant with the most loses its oldest."""

Pair = tuple[bytes, bytes]
"""Exact fingerprints of a question and of the entry that it hit."""


class AuditChoice:
    """Probabilities of audits. Bounded; draws nothing itself; the auditor calls `audited` for each audit."""

    __slots__ = ("_exposures",)

    def __init__(self) -> None:
        self._exposures: FairRecent[Pair, int] = FairRecent(MAX_PAIRS)
        """Hits of each pair since its last audit."""

    def of_served(
        self, pair: Pair, match_probability: float, audit_ratio: float, stats: RouteStats, tenant: str
    ) -> float:
        """Return the probability of an audit of a tenant's hit."""
        doubt = 1.0 - match_probability
        probability = audit_probability(audit_ratio, doubt, stats.usual_doubt(doubt))
        exposures = (self._exposures.get(pair) or 0) + 1
        self._exposures.put(pair, exposures, tenant)
        return 1.0 if exposures >= MAX_EXPOSURES and probability > 0.0 else probability

    def audited(self, pair: Pair, tenant: str) -> None:
        """Note that this pair of a tenant is audited."""
        self._exposures.put(pair, -MANY, tenant)

    @staticmethod
    def of_other(match_probability: float, audit_ratio: float, lowest: float) -> float:
        """Return the probability of comparing an entry that was not served with a deployment's response.

        `lowest` is the least match probability that a lower level would serve.
        """
        return min(1.0, COMPARED_RATIO * audit_ratio) if match_probability >= lowest else 0.0
