"""A policy that never ran, evaluated from recorded requests: its figures, and when the records cannot tell."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest

from routing_policies.loading import load_policy
from routing_policies.off_policy.policy_evaluation import (
    EvaluatedMeasure,
    PolicyEvaluation,
    evaluate_beside,
)
from routing_policies.policy.document import Policy
from routing_policies.replay import RecordedRequest, RecordedVerdict
from tests.routing_policies.off_policy.recording import recorded

BASE = """
schema_version: 1
deployments:
  - {{id: small, url: "http://small", model: tiny, cost_per_mtok: {{prompt: 1, completion: 1}}}}
  - {{id: large, url: "http://large", model: big, cost_per_mtok: {{prompt: 10, completion: 10}}}}
  - {{id: spare, url: "http://spare", model: big, cost_per_mtok: {{prompt: 10, completion: 10}}}}
routes:
  - {{id: main, select: {{{select}}}{rest}}}
"""
RAN = "candidates: [large, small], explore: {ratio: 0.2}"
SEMANTIC = ", cache: {mode: exact_then_semantic, audit_ratio: 0.2}"


def policy(select: str = RAN, rest: str = "") -> Policy:
    return load_policy(BASE.format(select=select, rest=rest), source="policy")


REQUESTS, VERDICTS = recorded()


def evaluated(
    new: Policy, requests: Sequence[RecordedRequest] = REQUESTS, ran: Policy | None = None
) -> dict[str, EvaluatedMeasure]:
    found = evaluate_beside(new, ran or policy(), requests, VERDICTS).new
    assert found.why_not is None
    return {measure.name: measure for measure in found.measures}


def holds(measure: EvaluatedMeasure, truth: float, near: float) -> None:
    assert measure.why_not is None
    assert measure.estimate is not None
    for side in (measure.estimate.doubly_robust, measure.estimate.propensity):
        assert side.low <= truth <= side.high
    assert measure.estimate.doubly_robust.value == pytest.approx(truth, rel=near)


def test_the_figures_of_an_untried_policy_are_near_those_it_would_have() -> None:
    found = evaluated(policy("candidates: [small, large]"))
    holds(found["good_ratio"], 0.7, 0.07)
    holds(found["cost_per_1k"], 1.2, 0.05)
    holds(found["ttft_ms"], 50.0, 0.05)
    late = found["slow_ratio"].estimate
    assert late is not None
    assert late.doubly_robust.low == 0.0
    assert late.doubly_robust.high < 0.1
    assert "wrong_hit_ratio" not in found


def test_differences_are_of_the_same_requests_and_in_the_unit_of_the_figure() -> None:
    new = policy("candidates: [small, large]")
    both = evaluate_beside(new, policy(), REQUESTS, VERDICTS)
    assert both.recorded == evaluate_beside(policy(), policy(), REQUESTS, VERDICTS).new
    values = [{one.name: one.estimate for one in side.measures} for side in (both.new, both.recorded)]
    found = {one.name: one.difference for one in both.differences}
    assert found.keys() == {"good_ratio", "cost_per_1k", "slow_ratio", "ttft_ms"}
    for name, gap in found.items():
        one, other = values[0][name], values[1][name]
        assert one is not None
        assert other is not None
        for side in ("doubly_robust", "propensity"):
            mine, its, theirs = getattr(gap, side), getattr(one, side), getattr(other, side)
            assert mine.value == pytest.approx(its.value - theirs.value, abs=1e-9 + 0.02 * theirs.value)
            assert mine.low < mine.value < mine.high
    cost = found["cost_per_1k"].doubly_robust
    assert cost.high < 0.0, "the small model costs a tenth"


def test_what_the_records_cannot_tell_has_no_difference() -> None:
    both = evaluate_beside(policy("candidates: [small, spare]"), policy(), REQUESTS[:150], VERDICTS)
    assert both.differences == ()


def test_a_condition_moves_only_the_requests_it_holds_for() -> None:
    short = """  - id: short
    match: {when: "request.turns <= 1"}
    select: {candidates: [small]}
"""
    document = BASE.format(select=RAN, rest="").replace("routes:\n", f"routes:\n{short}")
    found = evaluated(load_policy(document, source="policy"))
    holds(found["good_ratio"], 0.5 * 0.9 + 0.5 * (0.9 * 0.95 + 0.1 * 0.5), 0.03)


def test_the_policy_that_ran_has_its_recorded_figures() -> None:
    found = evaluated(policy())
    measured = found["good_ratio"].estimate
    assert measured is not None
    evaluated_ids = {request.id for request in REQUESTS[100:]}
    wrong = sum(verdict.verdict_of in evaluated_ids for verdict in VERDICTS)
    assert measured.propensity.value == pytest.approx(1.0 - wrong / len(evaluated_ids))
    assert measured.num_effective == pytest.approx(measured.num_requests)


def test_without_exploration_the_records_cannot_tell_and_the_reason_is_given() -> None:
    requests, _ = recorded(ratio=0.0)
    found = evaluated(policy("candidates: [small, large]"), requests, policy("candidates: [large, small]"))
    for measure in found.values():
        assert measure.why_not is not None
        assert "no overlap for 100.0%" in measure.why_not
        assert "small was never chosen for such requests on route main, which does not explore" in measure.why_not
        assert measure.estimate is not None
        assert measure.estimate.doubly_robust.low == 0.0


def test_a_candidate_that_no_route_had_cannot_be_evaluated() -> None:
    found = evaluated(policy("candidates: [spare]"))
    assert "spare was never chosen" in (found["good_ratio"].why_not or "")


def test_too_little_exploration_is_reported() -> None:
    requests, _ = recorded(1_500, ratio=0.04)
    found = evaluated(policy("candidates: [small, large]"), requests)
    assert "effective sample size" in (found["good_ratio"].why_not or "")
    few = evaluate_beside(policy("candidates: [small]"), policy(), requests[:50], []).new
    assert few == PolicyEvaluation(num_requests=50, why_not="50 requests are recorded; 200 are needed")


def test_without_feedback_quality_is_unknown() -> None:
    found = evaluate_beside(policy("candidates: [small, large]"), policy(), REQUESTS, []).new
    (quality,) = (measure for measure in found.measures if measure.name == "good_ratio")
    assert "no feedback was recorded" in (quality.why_not or "")
    (cost,) = (measure for measure in found.measures if measure.name == "cost_per_1k")
    assert cost.why_not is None


def test_a_verdict_of_another_tenant_does_not_count() -> None:
    theirs = [msgspec.structs.replace(verdict, tenant="other") for verdict in VERDICTS]
    found = evaluate_beside(policy(), policy(), REQUESTS, theirs).new
    (quality,) = (measure for measure in found.measures if measure.name == "good_ratio")
    assert quality.estimate is not None
    assert quality.estimate.propensity.value == 1.0


def test_a_cascade_and_unrecorded_predictions_cannot_be_evaluated() -> None:
    cascade = evaluated(policy("policy: cascade, min_quality: 0.8, candidates: [small, large]"))
    assert "cascade" in (cascade["good_ratio"].why_not or "")
    by_quality = evaluated(policy("policy: quality_then_latency, min_quality: 0.8, candidates: [small, large]"))
    assert "predictions that were not recorded" in (by_quality["good_ratio"].why_not or "")


def similar(wrong_ratio: float, *, audited: bool = True) -> tuple[list[RecordedRequest], list[RecordedVerdict]]:
    """Half of the requests get a similar cached response, and a fifth of those is audited."""
    rng = random.Random(3)
    requests, verdicts = [], []
    for request in REQUESTS:
        if rng.random() < 0.5:
            is_audited = audited and rng.random() < 0.2
            request = msgspec.structs.replace(
                request,
                cache="hit_semantic",
                deployment="",
                choice="",
                propensities={},
                audit_probability=0.2 if audited else 0.0,
                is_audited=is_audited,
            )
            if is_audited:
                is_wrong = rng.random() < wrong_ratio
                made = RecordedVerdict(
                    verdict_of=request.id, tenant="shop", at=request.at, by="audit", is_wrong=is_wrong
                )
                verdicts.append(made)
        requests.append(request)
    return requests, verdicts


def wrong_hits(
    new: Policy, requests: Sequence[RecordedRequest], verdicts: Sequence[RecordedVerdict]
) -> EvaluatedMeasure:
    found = evaluate_beside(new, policy(rest=SEMANTIC), requests, verdicts).new
    return next(measure for measure in found.measures if measure.name == "wrong_hit_ratio")


def test_the_cache_error_comes_from_audits_weighed_by_their_probability() -> None:
    requests, verdicts = similar(0.1)
    holds(wrong_hits(policy(rest=SEMANTIC), requests, verdicts), 0.05, 0.25)
    without = wrong_hits(policy(), requests, verdicts)
    assert without.estimate is not None
    assert without.estimate.propensity.value == 0.0


def test_the_cache_error_is_unknown_without_audits_and_for_another_threshold() -> None:
    requests, verdicts = similar(0.1, audited=False)
    assert "without audits" in (wrong_hits(policy(rest=SEMANTIC), requests, verdicts).why_not or "")
    looser = SEMANTIC.replace("}", ", max_error_ratio: 0.2}")
    assert "cache differs" in (wrong_hits(policy(rest=looser), requests, verdicts).why_not or "")


def test_an_audit_without_a_verdict_counts_as_right_and_as_wrong() -> None:
    requests, _ = similar(0.1)
    estimate = wrong_hits(policy(rest=SEMANTIC), requests, []).estimate
    assert estimate is not None
    assert estimate.doubly_robust.low == 0.0
    assert estimate.doubly_robust.high > 0.5


def test_answers_that_only_the_cache_gave_are_not_known_of_a_policy_without_it() -> None:
    requests, verdicts = similar(0.1)
    found = evaluate_beside(policy(), policy(rest=SEMANTIC), requests, verdicts).new
    cost = next(measure for measure in found.measures if measure.name == "cost_per_1k")
    assert "the cache answered" in (cost.why_not or "")
