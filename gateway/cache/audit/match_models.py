"""MatchModels: the match model that ships with the package, and how audits of one route recalibrate it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from gateway.cache.audit.calibration import CalibrationSample, recalibrate
from gateway.cache.audit.evidence import Sample
from gateway.cache.audit.route_stats import MatchPredictor
from gateway.cache.similarity.decision import MatchModel

LEARN_S: Final = 2.0
"""Time between two checks for routes with new audits."""
MIN_NEWS: Final = 16
"""Audits of one route after which its model is recalibrated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchModels:
    """The first match model, and how others are made of it."""

    first: MatchPredictor
    encoder_id: str | None
    """The encoder that the model was calibrated with; None: any."""
    learn: Callable[[Iterable[Sample]], MatchPredictor]
    """Fit of the model to the samples. Takes milliseconds, on any thread."""

    @classmethod
    def shipped(cls) -> MatchModels:
        """Return the model calibrated on public questions; reads one file."""
        model = MatchModel.shipped()

        def learn(samples: Iterable[Sample]) -> MatchModel:
            verdicts = [
                CalibrationSample(found.shipped_probability, not found.is_wrong, found.weight) for found in samples
            ]
            return model.with_calibration(recalibrate(model.coefficients.calibration, verdicts))

        return cls(first=model, encoder_id=model.coefficients.encoder, learn=learn)
