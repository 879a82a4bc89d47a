"""The pairs of a route's candidates that are compared, and the predictions for one prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from routing_policies.policy.document import Deployment
from routing_policies.quality.predictor import Judged, Predictor, Predictors
from routing_policies.quality.prompt import Prompt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class PairPredictor(msgspec.Struct, frozen=True):
    """A candidate whose quality is predicted."""

    deployment: str
    predictor: Predictor
    strong_quality: float
    """Quality of the one it is compared with, by the policy."""


class QualityPrediction(msgspec.Struct, frozen=True):
    """The predictions for one prompt."""

    quality: dict[str, float]
    """Predicted quality by deployment; the policy's constant holds for all others."""
    is_known: bool
    """False: some prediction was not to be relied on, and counts as 0."""
    judged: tuple[tuple[PairPredictor, Judged], ...] = ()


def judges_of(candidates: Sequence[Deployment], predictors: Predictors) -> tuple[PairPredictor, ...]:
    """Return a predictor for each candidate that has coefficients against the strongest one.

    The strongest is the one the policy calls best, of equals the dearest, then the last one written.
    """
    if len(candidates) < 2 or not len(predictors):
        return ()
    strongest = strongest_of(candidates)
    found = [(candidate, predictors.find(candidate.model, strongest.model)) for candidate in candidates]
    return tuple(
        PairPredictor(one.id, predictor, strongest.quality) for one, predictor in found if predictor is not None
    )


def strongest_of(candidates: Sequence[Deployment]) -> Deployment:
    """Return the deployment that the others are compared with."""
    return sorted(candidates, key=_strength)[-1]


def weak_and_strong(both: Sequence[Deployment]) -> tuple[Deployment, Deployment] | None:
    """Return two deployments in that order; None for any other number, or when both serve the same model."""
    if len(both) != 2 or both[0].model == both[1].model:
        return None
    weak, strong = sorted(both, key=_strength)
    return weak, strong


def predicted_quality(
    judges: Sequence[PairPredictor], prompt: Prompt, vector: NDArray[np.float32] | None = None
) -> QualityPrediction:
    """Return all predictions for one prompt; `vector` is of the encoder whose embeddings they learned from."""
    judged = tuple((judge, judge.predictor.judge(prompt, vector)) for judge in judges)
    return QualityPrediction(
        quality={judge.deployment: found.prediction.chance * judge.strong_quality for judge, found in judged},
        is_known=all(found.prediction.is_known for _, found in judged),
        judged=judged,
    )


def _strength(deployment: Deployment) -> tuple[float, float]:
    return deployment.quality, _price(deployment)


def _price(deployment: Deployment) -> float:
    rates = deployment.cost_per_mtok
    return 0.0 if rates is None else rates.prompt + rates.completion
