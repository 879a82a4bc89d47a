"""AuditChoice: which similar answers are held against a new one, and with what probability each."""

from __future__ import annotations

from typing import Final

from gateway.cache.audit.error_budget import audit_probability
from gateway.cache.audit.route_stats import RouteStats
from gateway.util.bounded_dict import Recent

MAX_EXPOSURES: Final = 3
"""Of one question to the same answer; from then on it is audited at once, for what is asked often goes wrong often."""
MANY: Final = 100
"""Exposures after an audit, until it is one of those again."""
COMPARED_RATIO: Final = 5.0
"""Of `audit_ratio`: the share of answers compared that cost no upstream call."""
MAX_PAIRS: Final = 10_000
"""Of questions and answers whose exposures are counted."""


class AuditChoice:
    """Bounded; draws nothing itself. Whoever audits says so, and whoever cannot (for load) says nothing."""

    __slots__ = ("_exposures",)

    def __init__(self) -> None:
        self._exposures: Recent[tuple[bytes, bytes], int] = Recent(MAX_PAIRS)
        """How often a question was given the same similar answer since it was last audited."""

    def of_served(self, asked: bytes, kept: bytes, chance: float, audit_ratio: float, book: RouteStats) -> float:
        """The answer of `kept` is given to `asked`: the probability with which it is to be audited."""
        doubt = 1.0 - chance
        probability = audit_probability(audit_ratio, doubt, book.usual_doubt(doubt))
        pair = asked, kept
        exposures = self._exposures[pair] = self._exposures.get(pair, 0) + 1
        return 1.0 if exposures >= MAX_EXPOSURES and probability > 0.0 else probability

    def audited(self, asked: bytes, kept: bytes) -> None:
        """It is."""
        self._exposures[asked, kept] = -MANY

    @staticmethod
    def of_other(chance: float, audit_ratio: float, lowest: float) -> float:
        """A deployment has said what a kept answer might have: the probability with which the two are compared.

        `lowest` is the least chance about which there is anything to prove.
        """
        return min(1.0, COMPARED_RATIO * audit_ratio) if chance >= lowest else 0.0
