"""OutcomeModel: expected outcome of a candidate's answer to a kind of request, learned from earlier answers only."""

from __future__ import annotations

from typing import Final

Features = tuple[int | bool, ...]
"""Kind of a request; requests with equal features are predicted alike."""

_PRIOR: Final = 0.5
_PRIOR_WEIGHT: Final = 1.0
_SHRINKAGE: Final = 8.0
"""Number of answers of a kind from which on its own mean counts more than the candidate's."""


class OutcomeModel:
    """Running means by candidate and kind; a kind with few answers is drawn towards the candidate's mean."""

    __slots__ = ("_by_candidate", "_by_kind", "_overall")

    def __init__(self) -> None:
        self._overall = [0.0, 0.0]
        """Sum and number of outcomes; the values of the other tables are the same."""
        self._by_candidate: dict[str, list[float]] = {}
        self._by_kind: dict[tuple[str, Features], list[float]] = {}

    def predict(self, candidate: str, features: Features) -> float:
        """Return the expected outcome, in [0, 1] as the outcomes are."""
        total, num = self._overall
        mean = (total + _PRIOR_WEIGHT * _PRIOR) / (num + _PRIOR_WEIGHT)
        for found in (self._by_candidate.get(candidate), self._by_kind.get((candidate, features))):
            if found is not None:
                mean = (found[0] + _SHRINKAGE * mean) / (found[1] + _SHRINKAGE)
        return mean

    def learn(self, candidate: str, features: Features, outcome: float) -> None:
        """Add one observed outcome."""
        tables = (
            self._overall,
            self._by_candidate.setdefault(candidate, [0.0, 0.0]),
            self._by_kind.setdefault((candidate, features), [0.0, 0.0]),
        )
        for table in tables:
            table[0] += outcome
            table[1] += 1.0
