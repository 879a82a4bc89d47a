"""PolicyEvaluation: quality, cost, latency and cache error of a policy, from requests that were recorded under another.

Every interval is time-uniform and holds for one figure of one policy at 95 %. The first `WARM_REQUESTS` are not
evaluated: they fix the scales and start the models of outcomes. Everything else that a request is evaluated by comes
from earlier ones. So the recording may grow and be evaluated again. Where it loses old requests, a new sequence begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from routing_policies.estimation.estimators import Price, cost_of
from routing_policies.off_policy.estimates import (
    NOTHING_SEEN,
    PolicyDifference,
    PolicyEstimate,
    Series,
    WeighedChoice,
    estimate,
    estimate_difference,
    weigh,
)
from routing_policies.off_policy.target import TargetPolicy, TargetRequest, request_features
from routing_policies.policy.deployment import CostPerMtok
from routing_policies.policy.document import Cache, Policy
from routing_policies.replay import Measured, RecordedRequest, RecordedVerdict

MeasureName = Literal["good_ratio", "cost_per_1k", "slow_ratio", "ttft_ms", "wrong_hit_ratio"]
"""A figure of an evaluated policy.

- `good_ratio`: requests with an answer that no feedback marked as wrong.
- `cost_per_1k`: cost of a thousand requests.
- `slow_ratio`: first tokens later than the lane's target, or than the recorded 95th percentile.
- `ttft_ms`: mean time to first token.
- `wrong_hit_ratio`: requests that got a similar cached response which an audit finds wrong.
"""

MIN_REQUESTS: Final = 200
"""Number of recorded requests below which nothing is evaluated."""
MIN_EFFECTIVE: Final = 100.0
MAX_UNSEEN: Final = 0.05
"""Share of a policy's choices that the records may lack; it is also the largest bias."""
MAX_REQUESTS: Final = 50_000
WARM_REQUESTS: Final = 100
_CAP: Final = 2.0
"""Factor over the largest value of the first requests, at which values are cut off."""
_MAX_REASONS: Final = 2


class EvaluatedMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of an evaluated policy."""

    name: MeasureName
    estimate: PolicyEstimate | None
    """None where nothing was recorded that the figure could come from."""
    cap: float | None = None
    """Value at which single requests are cut off; None for ratios."""
    why_not: str | None = None
    """Reason why the records cannot tell; None where they can."""


class PolicyEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """A policy by its figures."""

    num_requests: int
    measures: tuple[EvaluatedMeasure, ...] = ()
    why_not: str | None = None
    """Reason why nothing was evaluated; None where something was."""


class MeasureDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a policy less that of the policy that ran, on the same requests."""

    name: MeasureName
    difference: PolicyDifference


class PolicyComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A policy beside the one that ran."""

    recorded: PolicyEvaluation
    new: PolicyEvaluation
    differences: tuple[MeasureDifference, ...] = ()
    """Differences of the figures that the records can tell."""


class _Case(NamedTuple):
    request: RecordedRequest
    evaluated: TargetRequest


class _Measured(NamedTuple):
    """One figure with the outcomes behind it."""

    measure: EvaluatedMeasure
    series: Series = Series((), ())
    places: Sequence[int] = ()
    """Place of each outcome's request in the recording."""
    scale: float = 1.0
    """Unit of the outcomes: the figure that an outcome of 1 stands for."""


class _Records(NamedTuple):
    """Recorded requests under one evaluated policy."""

    cases: list[_Case]
    places: list[int]
    """Place of each in the recording."""
    num_warm: int
    wrong: frozenset[str]
    """Ids of requests whose answers feedback marked as wrong."""
    audits: Mapping[str, bool]
    """Verdict of each audit by request id: True for wrong."""
    hit_ms: float


def evaluate_beside(
    policy: Policy, ran: Policy, requests: Sequence[RecordedRequest], verdicts: Sequence[RecordedVerdict]
) -> PolicyComparison:
    """Return the evaluations of a policy and of the one that ran, and their differences.

    Args:
        policy: The policy to evaluate.
        ran: The policy under which the requests were recorded.
        requests: Recorded requests in order of time.
        verdicts: Verdicts on their answers in order of time.
    """
    recorded, was = _evaluate(ran, ran, requests, verdicts)
    new, would_be = _evaluate(policy, ran, requests, verdicts)
    before = {one.measure.name: one for one in was}
    known = [one for one in would_be if one.measure.why_not is None and one.measure.name in before]
    differences = [_difference(one, before[one.measure.name]) for one in known]
    return PolicyComparison(
        recorded=recorded, new=new, differences=tuple(found for found in differences if found is not None)
    )


def _difference(one: _Measured, other: _Measured) -> MeasureDifference | None:
    """Return the difference of one figure; None where too few requests have it under both policies."""
    scale, both = max(one.scale, other.scale), {*one.places} & {*other.places}
    num_warm = sum(place < WARM_REQUESTS for place in both)
    if len(both) - num_warm < MIN_REQUESTS // 2:
        return None
    found = estimate_difference(_part(one, both, scale), _part(other, both, scale), num_warm, scale=scale)
    return MeasureDifference(name=one.measure.name, difference=found)


def _part(measured: _Measured, places: set[int], scale: float) -> Series:
    """Return the outcomes at these places, with 1 for what `scale` stands for."""
    choices, outcomes, highest = measured.series
    common, unit = [n for n, place in enumerate(measured.places) if place in places], measured.scale / scale
    return Series(
        [choices[n] for n in common],
        [outcomes[n] * unit for n in common],
        None if highest is None else [highest[n] * unit for n in common],
    )


def _evaluate(
    policy: Policy, ran: Policy, requests: Sequence[RecordedRequest], verdicts: Sequence[RecordedVerdict]
) -> tuple[PolicyEvaluation, tuple[_Measured, ...]]:
    requests = requests[-MAX_REQUESTS:]
    num = len(requests)
    if num < MIN_REQUESTS:
        why = f"{num} requests are recorded; {MIN_REQUESTS} are needed"
        return PolicyEvaluation(num_requests=num, why_not=why), ()
    measured, next_measure = Measured(requests[:WARM_REQUESTS]), 2 * WARM_REQUESTS
    target, cases, places = TargetPolicy(policy, ran, measured), list[_Case](), list[int]()
    for place, request in enumerate(requests):
        if place == next_measure:
            target.measure(Measured(requests[:place]))
            next_measure *= 2
        evaluated = target.weigh(request)
        if evaluated is not None and request.ended != "shed":
            cases.append(_Case(request, evaluated))
            places.append(place)
    num_warm = sum(place < WARM_REQUESTS for place in places)
    if len(cases) - num_warm < MIN_REQUESTS // 2:
        why = "hardly any recorded request has a route in this policy and was not shed"
        return PolicyEvaluation(num_requests=len(cases), why_not=why), ()
    tenants = {request.id: request.tenant for request in requests if request.id}
    mine = [verdict for verdict in verdicts if tenants.get(verdict.verdict_of) == verdict.tenant]
    records = _Records(
        cases,
        places,
        num_warm,
        frozenset(verdict.verdict_of for verdict in mine if verdict.by == "feedback"),
        {verdict.verdict_of: verdict.is_wrong for verdict in mine if verdict.by == "audit"},
        measured.hit_ms,
    )
    found = (
        _good_ratio(records),
        _cost(records, policy),
        *_latency(records, policy),
        _wrong_hits(records, policy, ran),
    )
    measured_ones = tuple(one for one in found if one is not None)
    measures = tuple(one.measure for one in measured_ones)
    return PolicyEvaluation(num_requests=len(cases) - num_warm, measures=measures), measured_ones


def _good_ratio(records: _Records) -> _Measured:
    choices, outcomes = [], []
    for request, evaluated in records.cases:
        # A hit in place of a recorded answer is a response that the records do not show.
        is_new_hit = evaluated.is_hit and not request.cache.startswith("hit")
        choices.append(NOTHING_SEEN if is_new_hit else evaluated.choice)
        outcomes.append(float(request.ended == "answered" and request.id not in records.wrong))
    no_verdicts = None if records.wrong else "no feedback was recorded, so only failed requests count as not good"
    return _evaluated("good_ratio", records, choices, outcomes, why_not=no_verdicts)


def _cost(records: _Records, policy: Policy) -> _Measured | None:
    rates = {item.id: item.cost_per_mtok for item in policy.deployments}
    if not any(rates.values()):
        return None
    used = {name for _, evaluated in records.cases for name in (*evaluated.choice.covered, evaluated.choice.chosen)}
    unpriced = sorted(name for name in used if name in rates and rates[name] is None)
    costs = [
        0.0 if evaluated.is_hit else _cost_at(rates.get(request.deployment), request)
        for request, evaluated in records.cases
    ]
    if unpriced:
        return _unknown("cost_per_1k", f"{', '.join(unpriced)} has no cost_per_mtok")
    dearest = max((known for known in rates.values() if known is not None), key=lambda one: one.prompt + one.completion)
    cap = _CAP * max((_cost_at(dearest, request) for request, _ in records.cases[: records.num_warm]), default=0.0)
    if cap <= 0.0:
        return _unknown("cost_per_1k", "no tokens were recorded")
    outcomes = [min(cost / cap, 1.0) for cost in costs]
    choices = [evaluated.choice for _, evaluated in records.cases]
    return _evaluated("cost_per_1k", records, choices, outcomes, cap=cap, scale=cap * 1000)


def _cost_at(rates: CostPerMtok | None, request: RecordedRequest) -> float:
    return cost_of(rates, Price(request.prompt_tokens, request.prompt_tokens, request.output_tokens)) or 0.0


def _latency(records: _Records, policy: Policy) -> tuple[_Measured, ...]:
    """Return the figures of times to first token; requests that report none are left out."""
    targets = {lane.id: lane.slo.ttft_p95_ms for lane in policy.lanes if lane.slo is not None}
    first = [case.request.ttft_ms for case in records.cases[: records.num_warm] if case.request.ttft_ms is not None]
    if not first:
        why = f"no time to first token was recorded among the first {WARM_REQUESTS} requests"
        return _unknown("slow_ratio", why), _unknown("ttft_ms", why)
    cap, usual = _CAP * max(first), sorted(first)[int(0.95 * len(first))]
    slow, times, choices, places = list[float](), list[float](), list[WeighedChoice](), list[int]()
    for place, (request, evaluated) in zip(records.places, records.cases, strict=True):
        if evaluated.is_hit and not request.cache.startswith("hit"):
            ttft_ms: float | None = records.hit_ms
        else:
            ttft_ms = cap if request.ended == "failed" else request.ttft_ms
        if ttft_ms is None:
            continue
        is_late = request.ended == "failed" or ttft_ms > targets.get(request.lane, usual)
        choices.append(evaluated.choice)
        slow.append(float(is_late))
        times.append(min(ttft_ms / cap, 1.0))
        places.append(place)
    records = records._replace(places=places, num_warm=sum(place < WARM_REQUESTS for place in places))
    return (
        _evaluated("slow_ratio", records, choices, slow),
        _evaluated("ttft_ms", records, choices, times, cap=cap, scale=cap),
    )


def _wrong_hits(records: _Records, policy: Policy, ran: Policy) -> _Measured | None:
    """Return the share of wrong similar answers; None where neither policy serves any."""
    if not any(_is_semantic(route.cache) for one in (policy, ran) for route in one.routes):
        return None
    before = {route.id: route.cache for route in ran.routes}
    lowest, highest, choices, reasons = list[float](), list[float](), list[WeighedChoice](), Counter[str]()
    for request, evaluated in records.cases:
        choice, is_similar = _certain(request), request.cache == "hit_semantic"
        verdict: bool | None = False
        if _is_semantic(evaluated.route.cache):
            if before.get(request.route) != evaluated.route.cache or evaluated.route.id != request.route:
                choice = NOTHING_SEEN
                reasons["the route's cache differs from the one that ran"] += 1
            elif is_similar and evaluated.is_hit:
                choice = _audited(request)
                verdict = records.audits.get(request.id) if request.is_audited else False
                if choice is NOTHING_SEEN:
                    reasons["similar answers were served without audits (cache.audit_ratio)"] += 1
        choices.append(choice)
        lowest.append(float(verdict is True))
        highest.append(float(verdict is not False))
    return _evaluated("wrong_hit_ratio", records, choices, lowest, highest=highest, reasons=reasons)


def _is_semantic(cache: Cache) -> bool:
    return cache.mode == "exact_then_semantic"


def _certain(request: RecordedRequest) -> WeighedChoice:
    return weigh("known", request_features(request), {"known": 1.0}, {"known": 1.0})


def _audited(request: RecordedRequest) -> WeighedChoice:
    """Return a similar answer as a choice between an audit and none, of which only the audit shows its error."""
    share = request.audit_probability
    if share <= 0.0:
        return NOTHING_SEEN
    recorded = {"audited": share, "unaudited": 1.0 - share}
    chosen = "audited" if request.is_audited else "unaudited"
    return weigh(chosen, request_features(request), recorded, {"audited": 1.0})


def _evaluated(
    name: MeasureName,
    records: _Records,
    choices: Sequence[WeighedChoice],
    outcomes: Sequence[float],
    *,
    highest: Sequence[float] | None = None,
    cap: float | None = None,
    scale: float = 1.0,
    why_not: str | None = None,
    reasons: Counter[str] | None = None,
) -> _Measured:
    num = len(choices) - records.num_warm
    if num < MIN_REQUESTS // 2:
        return _unknown(name, f"{num} requests have it; {MIN_REQUESTS // 2} are needed")
    series = Series(choices, outcomes, highest)
    found = estimate(series, records.num_warm, scale=scale)
    if reasons is None:
        reasons = Counter(case.evaluated.why_unseen for case in records.cases if case.evaluated.why_unseen is not None)
    measure = EvaluatedMeasure(name=name, estimate=found, cap=cap, why_not=_doubt(found, reasons) or why_not)
    return _Measured(measure, series, records.places, scale)


def _unknown(name: MeasureName, why_not: str) -> _Measured:
    return _Measured(EvaluatedMeasure(name=name, estimate=None, why_not=why_not))


def _doubt(found: PolicyEstimate, reasons: Counter[str]) -> str | None:
    """Return why the records cannot tell; None where they can."""
    if found.unseen > MAX_UNSEEN:
        why = "; ".join(reason for reason, _ in reasons.most_common(_MAX_REASONS))
        shown = why or "its cache would answer requests that no cache has answered"
        return f"no overlap for {found.unseen:.1%} of what this policy would do: {shown}"
    if found.num_effective < MIN_EFFECTIVE:
        return (
            f"the effective sample size is {found.num_effective:.0f} of {found.num_requests:,} requests, and "
            f"{MIN_EFFECTIVE:.0f} are needed: record longer, or raise select.explore.ratio"
        )
    return None
