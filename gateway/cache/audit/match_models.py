"""MatchModels: the judge that ships with the package, and what it becomes by what audits of one route found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from gateway.cache.audit.calibration import CalibrationSample, recalibrate
from gateway.cache.audit.evidence import Sample
from gateway.cache.audit.route_stats import MatchPredictor
from gateway.cache.similarity.decision import MatchModel

LEARN_S: Final = 2.0
"""Between two looks at which judges have something to learn."""
MIN_NEWS: Final = 16
"""Audits of one route after which its chances are worked out again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchModels:
    """The one to begin with, and how others are made of it."""

    first: MatchPredictor
    encoder_id: str | None
    """Whose similarities it was calibrated on; None: anybody's."""
    learn: Callable[[Iterable[Sample]], MatchPredictor]
    """The judge that fits what was found best. Takes milliseconds; any thread."""

    @classmethod
    def shipped(cls) -> MatchModels:
        """As calibrated on public questions; reads one file."""
        judge = MatchModel.shipped()

        def learn(samples: Iterable[Sample]) -> MatchModel:
            verdicts = [CalibrationSample(found.shipped_chance, not found.is_wrong, found.weight) for found in samples]
            return judge.with_calibration(recalibrate(judge.coefficients.calibration, verdicts))

        return cls(first=judge, encoder_id=judge.coefficients.encoder, learn=learn)
