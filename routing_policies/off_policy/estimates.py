"""Estimates of a policy's mean outcome from requests that another policy routed.

A request was sent to candidate a with the recorded probability m(a); the evaluated policy would do so with probability
p(a). Inverse propensity weighting (Horvitz and Thompson, 1952) averages w * y with w = p(a) / m(a). The doubly robust
estimate (Dudík, Langford and Li, 2011) adds a model r of the outcomes, and weighs only the model's errors:

    w * (y - r(a)) + sum over b of p(b) * r(b).

Weights are clipped at `MAX_WEIGHT`, and candidates that were never chosen have no weight. So p is replaced by the part
that the records show, min(p, MAX_WEIGHT * m). What is cut off is `unseen`: outcomes lie in [0, 1], so this is the
largest bias. The bounds include it, because each side is a lower bound: of the mean of y, and of the mean of 1 - y.
Without overlap the bounds are [0, 1].

The difference of two policies on the same requests is bounded in the same way: a lower bound of the mean of
"the first one's y, plus the second one's 1 - y, less 1" is one of the difference. Where both policies do the same, the
terms of a request cancel. So this interval is far narrower than the difference of two intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from routing_policies.off_policy.mean_sequence import Counts, Floats, lower_bounds
from routing_policies.off_policy.outcome_model import Features, OutcomeModel

MAX_WEIGHT: Final = 1000.0
"""Weight above which a request does not count more."""
ALPHA: Final = 0.05
"""Probability that an interval excludes the true mean at any number of requests."""
NUM_CHECKPOINTS: Final = 24
"""Number of points of the curve of widths."""
_MIN_MARGIN: Final = 1.0
_MARGIN_FACTOR: Final = 1.25


class WeighedChoice(NamedTuple):
    """One recorded choice, as far as it tells about another policy."""

    chosen: str
    """Candidate that was chosen; empty where the records show nothing of the evaluated policy."""
    features: Features
    covered: Mapping[str, float]
    """Probability of each candidate under the evaluated policy, as far as the records show it."""
    weights: Mapping[str, float]
    """`covered` over the recorded probability."""

    @property
    def seen(self) -> float:
        """Part of the evaluated policy that the records show, in [0, 1]."""
        return sum(self.covered.values())

    @property
    def weight(self) -> float:
        """Weight of the recorded outcome; 0 where the evaluated policy would not choose so."""
        return self.weights.get(self.chosen, 0.0)


NOTHING_SEEN: Final = WeighedChoice("", (), {}, {})
"""Request of which the records cannot tell what the evaluated policy would do."""


class Bounded(msgspec.Struct, frozen=True, kw_only=True):
    """An estimated mean with its time-uniform 95 % interval, in the unit of the outcome."""

    value: float | None
    """None where no recorded choice has a weight."""
    low: float
    high: float


class WidthPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals after the first `n` evaluated requests."""

    n: int
    propensity: tuple[float, float]
    doubly_robust: tuple[float, float]


class Series(NamedTuple):
    """Recorded choices in the order of time, weighed for one policy, and their outcomes."""

    choices: Sequence[WeighedChoice]
    outcomes: Sequence[float]
    """Outcome of each in [0, 1]."""
    highest: Sequence[float] | None = None
    """Largest outcome that each may have had, where `outcomes` are the smallest; None means that they are known."""


class PolicyDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Mean outcome of one policy less that of another on the same requests."""

    num_requests: int
    propensity: Bounded
    doubly_robust: Bounded
    widths: tuple[WidthPoint, ...]


class PolicyEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's mean outcome over the evaluated requests."""

    num_requests: int
    num_effective: float
    """Number of requests that weigh as much as these do: (sum of w)^2 / sum of w^2 (Kish, 1965)."""
    unseen: float
    """Share of the policy's choices that the records do not show; also the largest bias of `value`, in outcomes."""
    propensity: Bounded
    """Self-normalized inverse propensity estimate; the interval is that of the clipped weights."""
    doubly_robust: Bounded
    widths: tuple[WidthPoint, ...]


def weigh(
    chosen: str,
    features: Features,
    recorded: Mapping[str, float],
    target: Mapping[str, float],
    max_weight: float = MAX_WEIGHT,
) -> WeighedChoice:
    """Return a recorded choice weighed for an evaluated policy.

    Args:
        chosen: Candidate that was chosen.
        features: Kind of the request.
        recorded: Probability of each candidate under the policy that ran; above 0 for `chosen`.
        target: Probability of each candidate under the evaluated policy.
        max_weight: Weight above which a request does not count more.
    """
    covered = {
        name: min(share, max_weight * known)
        for name, share in target.items()
        if (known := recorded.get(name, 0.0)) > 0.0 and share > 0.0
    }
    return WeighedChoice(chosen, features, covered, {name: share / recorded[name] for name, share in covered.items()})


def estimate(
    series: Series,
    num_warm: int,
    *,
    scale: float = 1.0,
    alpha: float = ALPHA,
    checkpoints: Sequence[int] | None = None,
) -> PolicyEstimate:
    """Return the estimate over all requests but the first `num_warm`, which only teach the model of outcomes.

    Args:
        series: Recorded choices and their outcomes under the policy.
        num_warm: Number of first requests that are not evaluated; at least one is left.
        scale: Unit of the results: an outcome of 1 stands for this much.
        alpha: Probability that an interval excludes the true mean at any number of requests.
        checkpoints: Numbers of evaluated requests for the curve of widths; None means `NUM_CHECKPOINTS` of them.
    """
    above, below = _both_terms(series, num_warm)
    num = len(above.weighted)
    at = _places(num, checkpoints)
    propensity = _interval(above.weighted, below.weighted, 0.0, 0.0, alpha, at) * scale
    robust = _interval(above.robust, below.robust, above.margin, below.margin, alpha, at) * scale
    weights = above.weights
    squares = float((weights**2).sum())
    return PolicyEstimate(
        num_requests=num,
        num_effective=float(weights.sum()) ** 2 / squares if squares else 0.0,
        unseen=max(0.0, 1.0 - float(above.seen.mean())),
        propensity=_bounded(above.weighted_mean, scale, propensity[-1]),
        doubly_robust=_bounded(above.robust_mean, scale, robust[-1]),
        widths=_widths(at, propensity, robust),
    )


def estimate_difference(
    one: Series,
    other: Series,
    num_warm: int,
    *,
    scale: float = 1.0,
    alpha: float = ALPHA,
    checkpoints: Sequence[int] | None = None,
) -> PolicyDifference:
    """Return the mean of one policy less that of another, over the same requests; the arguments are `estimate`'s."""
    above, below = _both_terms(one, num_warm)
    other_above, other_below = _both_terms(other, num_warm)
    at = _places(len(above.weighted), checkpoints)
    propensity = _gap(above.weighted + other_below.weighted, below.weighted + other_above.weighted, 0.0, 0.0, alpha, at)
    robust = _gap(
        above.robust + other_below.robust,
        below.robust + other_above.robust,
        above.margin + other_below.margin,
        below.margin + other_above.margin,
        alpha,
        at,
    )
    propensity, robust = propensity * scale, robust * scale
    return PolicyDifference(
        num_requests=len(above.weighted),
        propensity=_bounded(_less(above.weighted_mean, other_above.weighted_mean), scale, propensity[-1]),
        doubly_robust=_bounded(_less(above.robust_mean, other_above.robust_mean), scale, robust[-1]),
        widths=_widths(at, propensity, robust),
    )


class _Terms(NamedTuple):
    """Values that are averaged for one side, one for each evaluated request."""

    weighted: Floats
    robust: Floats
    weights: Floats
    seen: Floats
    margin: float
    """How far below 0 a value of `robust` may lie; fixed by the requests that are not evaluated."""

    @property
    def weighted_mean(self) -> float | None:
        """Self-normalized mean by inverse propensity; None where no choice has a weight."""
        return _mean(self.weighted, self.weights)

    @property
    def robust_mean(self) -> float | None:
        """Doubly robust mean over what the records show; None where they show nothing."""
        return _mean(self.robust, self.seen)


def _mean(values: Floats, wholes: Floats) -> float | None:
    whole = float(wholes.sum())
    return min(max(float(values.sum()) / whole, 0.0), 1.0) if whole else None


def _both_terms(series: Series, num_warm: int) -> tuple[_Terms, _Terms]:
    """Return the terms of y and those of 1 - y."""
    highest = series.outcomes if series.highest is None else series.highest
    lost = [1.0 - outcome for outcome in highest]
    return _terms(series.choices, series.outcomes, num_warm), _terms(series.choices, lost, num_warm)


def _terms(choices: Sequence[WeighedChoice], outcomes: Sequence[float], num_warm: int) -> _Terms:
    model, margin = OutcomeModel(), _MIN_MARGIN
    for choice, outcome in zip(choices[:num_warm], outcomes, strict=False):
        if choice.weight:
            margin = max(margin, _MARGIN_FACTOR * choice.weight * model.predict(choice.chosen, choice.features))
        if choice.chosen:
            model.learn(choice.chosen, choice.features, outcome)
    robust, rest = [], choices[num_warm:]
    for choice, outcome in zip(rest, outcomes[num_warm:], strict=True):
        value = 0.0
        for name, share in choice.covered.items():
            # The same clipped prediction in both places keeps the sum unbiased, and no term below -margin.
            predicted = min(model.predict(name, choice.features), margin / choice.weights[name])
            value += share * predicted
            if name == choice.chosen:
                value += choice.weights[name] * (outcome - predicted)
        robust.append(value)
        if choice.chosen:
            model.learn(choice.chosen, choice.features, outcome)
    weights = np.array([choice.weight for choice in rest])
    return _Terms(
        weights * np.array(outcomes[num_warm:], dtype=np.float64),
        np.array(robust),
        weights,
        np.array([choice.seen for choice in rest]),
        margin,
    )


def _interval(above: Floats, below: Floats, least: float, least_below: float, alpha: float, at: Counts) -> Floats:
    """Return rows of low and high bounds after each of `at` requests; every side has half of `alpha`."""
    low = lower_bounds(above, least, alpha / 2, at)
    high = 1.0 - lower_bounds(below, least_below, alpha / 2, at)
    return np.column_stack((np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)))


def _gap(gained: Floats, lost: Floats, least: float, least_lost: float, alpha: float, at: Counts) -> Floats:
    """Return rows of low and high bounds of a difference; its terms are those of `gained` and `lost`, less 1."""
    low = lower_bounds(gained - 1.0, least + 1.0, alpha / 2, at)
    high = -lower_bounds(lost - 1.0, least_lost + 1.0, alpha / 2, at)
    return np.column_stack((np.clip(low, -1.0, 1.0), np.clip(high, -1.0, 1.0)))


def _places(num: int, checkpoints: Sequence[int] | None) -> Counts:
    """Return the numbers of requests after which there is an interval; the last one is `num`."""
    if checkpoints is not None:
        return np.array([*checkpoints, num], dtype=np.int64)
    return np.unique(np.geomspace(min(20, num), num, NUM_CHECKPOINTS).astype(np.int64))


def _widths(at: Counts, propensity: Floats, robust: Floats) -> tuple[WidthPoint, ...]:
    return tuple(
        WidthPoint(n=int(n), propensity=(float(a[0]), float(a[1])), doubly_robust=(float(b[0]), float(b[1])))
        for n, a, b in zip(at, propensity, robust, strict=True)
    )


def _less(mean: float | None, other: float | None) -> float | None:
    return None if mean is None or other is None else mean - other


def _bounded(mean: float | None, scale: float, interval: Floats) -> Bounded:
    value = None if mean is None else mean * scale
    return Bounded(value=value, low=float(interval[0]), high=float(interval[1]))
