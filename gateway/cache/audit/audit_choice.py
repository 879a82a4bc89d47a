"""AuditChoice: which semantic hits are audited, and with what probability."""

from __future__ import annotations

from typing import Final

from gateway.cache.audit.error_budget import audit_probability
from gateway.cache.audit.route_stats import RouteStats
from gateway.util.bounded_dict import Recent

MAX_EXPOSURES: Final = 3
"""Hits of one question on one entry until an audit is certain: what is frequent goes wrong often."""
MANY: Final = 100
"""Hits after an audit until the pair counts as frequent again."""
COMPARED_RATIO: Final = 5.0
"""Factor on `audit_ratio` for comparisons that cost no upstream call."""
MAX_PAIRS: Final = 10_000
"""Number of pairs of question and entry whose hits are counted."""


class AuditChoice:
    """Probabilities of audits. Bounded; draws nothing itself; the auditor calls `audited` for each audit."""

    __slots__ = ("_exposures",)

    def __init__(self) -> None:
        self._exposures: Recent[tuple[bytes, bytes], int] = Recent(MAX_PAIRS)
        """Hits of each pair since its last audit."""

    def of_served(
        self, prompt: bytes, cached: bytes, match_probability: float, audit_ratio: float, stats: RouteStats
    ) -> float:
        """Return the probability of an audit of the hit of question `prompt` on entry `cached`."""
        doubt = 1.0 - match_probability
        probability = audit_probability(audit_ratio, doubt, stats.usual_doubt(doubt))
        pair = prompt, cached
        exposures = self._exposures[pair] = self._exposures.get(pair, 0) + 1
        return 1.0 if exposures >= MAX_EXPOSURES and probability > 0.0 else probability

    def audited(self, prompt: bytes, cached: bytes) -> None:
        """Note that this pair is audited."""
        self._exposures[prompt, cached] = -MANY

    @staticmethod
    def of_other(match_probability: float, audit_ratio: float, lowest: float) -> float:
        """Return the probability of comparing an entry that was not served with a deployment's response.

        `lowest` is the least match probability that a lower level would serve.
        """
        return min(1.0, COMPARED_RATIO * audit_ratio) if match_probability >= lowest else 0.0
