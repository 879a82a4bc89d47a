"""Pairs of a route's candidates to compare, and the predictions for one prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from routing_policies.policy.deployment import Deployment
from routing_policies.policy.members import group_of
from routing_policies.policy.selection import Select
from routing_policies.quality.predictor import Predictor, Predictors, QualityAssessment
from routing_policies.quality.prompt import Prompt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNSTATED_QUALITY: Final = Deployment(id="x", url="http://x", model="x").quality
"""Quality of a deployment whose policy states none."""


class PairPredictor(msgspec.Struct, frozen=True):
    """Predictor of one candidate's quality."""

    deployment: str
    predictor: Predictor
    strong_quality: float
    """Quality that the policy sets for the candidate's stronger counterpart."""


class QualityPrediction(msgspec.Struct, frozen=True):
    """Quality predictions for one prompt."""

    quality: dict[str, float]
    """Predicted quality by deployment; the policy's constant holds for all others."""
    is_known: bool
    """True if all predictions are reliable; an unreliable one counts as 0."""
    assessed: tuple[tuple[PairPredictor, QualityAssessment], ...] = ()


def pair_predictors_of(candidates: Sequence[Deployment], predictors: Predictors) -> tuple[PairPredictor, ...]:
    """Return a predictor for each candidate that has coefficients against the strongest one.

    The strongest has the highest quality in the policy; among equals the most expensive, then the last one in the
    policy.
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
    """Return the weak and the strong one of two deployments.

    The result is None for any other number, or when both serve the same model.
    """
    if len(both) != 2 or both[0].model == both[1].model:
        return None
    weak, strong = sorted(both, key=_strength)
    return weak, strong


def unknown_candidates(
    candidates: Sequence[Deployment], pair_predictors: Sequence[PairPredictor]
) -> tuple[Deployment, ...]:
    """Return the candidates of whose quality nothing is known beside the strongest one's.

    Such a candidate has no predictor, and the policy states no quality of it. Replicas of the strongest one's model
    are known.
    """
    if len(candidates) < 2:
        return ()
    strongest, predicted = strongest_of(candidates), {one.deployment for one in pair_predictors}
    return tuple(
        one
        for one in candidates
        if one.model != strongest.model and one.id not in predicted and one.quality == UNSTATED_QUALITY
    )


def rated_candidates(
    select: Select, candidates: Sequence[Deployment], pair_predictors: Sequence[PairPredictor]
) -> dict[str, Deployment]:
    """Return the candidates by id with the quality that a choice counts with.

    With `quality_then_latency` an unknown one of several candidates counts as not good enough, so the strongest one
    serves. Two candidates are a cascade, see `served_select`.
    """
    unknown = unknown_candidates(candidates, pair_predictors) if select.policy == "quality_then_latency" else ()
    rated = {one.id: msgspec.structs.replace(one, quality=0.0) for one in unknown}
    return {one.id: rated.get(one.id, one) for one in candidates}


def served_select(select: Select, candidates: Sequence[Deployment], pair_predictors: Sequence[PairPredictor]) -> Select:
    """Return the choice as it is served until something is known of a pair.

    A choice by quality between two candidates is then a cascade: the first tokens of the weak one's answer decide. An
    API other than OpenAI's states no log probabilities of them.
    """
    if select.policy != "quality_then_latency" or len(candidates) != 2:
        return select
    if not any(weak.dialect == "openai" for weak in unknown_candidates(candidates, pair_predictors)):
        return select
    strongest = strongest_of(candidates)
    ordered = sorted(select.resolved(), key=lambda candidate: group_of(candidate.id) == strongest.id)
    return msgspec.structs.replace(select, policy="cascade", candidates=tuple(ordered), hedge=None)


def predicted_quality(
    pair_predictors: Sequence[PairPredictor], prompt: Prompt, vector: NDArray[np.float32] | None = None
) -> QualityPrediction:
    """Return all predictions for one prompt; `vector` is by the encoder on whose embeddings they were trained."""
    assessed = tuple(
        (pair_predictor, pair_predictor.predictor.assess(prompt, vector)) for pair_predictor in pair_predictors
    )
    return QualityPrediction(
        quality={
            pair_predictor.deployment: found.prediction.probability * pair_predictor.strong_quality
            for pair_predictor, found in assessed
        },
        is_known=all(found.prediction.is_known for _, found in assessed),
        assessed=assessed,
    )


def _strength(deployment: Deployment) -> tuple[float, float]:
    return deployment.quality, _price(deployment)


def _price(deployment: Deployment) -> float:
    rates = deployment.cost_per_mtok
    return 0.0 if rates is None else rates.prompt + rates.completion
