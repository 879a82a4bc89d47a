"""The guarantee about wrong answers: how it is measured, and what follows."""

from __future__ import annotations

from random import Random

import pytest

from gateway.cache.audit.error_budget import (
    CLOSED,
    MIN_PROOF,
    audit_probability,
    budget_state,
    is_over,
    next_level,
    tightening_of,
)
from gateway.cache.audit.evidence import AuditEvidence, LookupTraffic, Sample
from gateway.cache.audit.route_stats import RouteStats
from tests.gateway.cache.word_encoder import NearMatchModel


def sample(
    number: int, *, wrong: bool = False, weight: float = 1.0, match_probability: float = 0.99, served: bool = True
) -> Sample:
    return Sample(
        id=f"r{number}",
        at=0.0,
        match_probability=match_probability,
        shipped_probability=match_probability,
        weight=weight,
        is_wrong=wrong,
        was_served=served,
    )


def traffic(evidence: AuditEvidence, num_requests: int, num_hits: int) -> AuditEvidence:
    evidence.set_traffic("elsewhere", 0, LookupTraffic(num_requests, num_hits))
    return evidence


def test_the_estimate_is_right_on_average_however_audits_are_drawn() -> None:
    rng = Random(3)
    estimates = []
    for _ in range(200):
        evidence = traffic(AuditEvidence(), 20_000, 2000)
        for number in range(2000):
            match_probability = rng.uniform(0.9, 1.0)
            probability = audit_probability(0.1, 1.0 - match_probability, 0.05)
            if rng.random() < probability:
                wrong = rng.random() > match_probability
                evidence.add(sample(number, wrong=wrong, weight=1 / probability, match_probability=match_probability))
        estimates.append(evidence.served())
    truth = 0.05 * 0.1
    assert sum(found.ratio for found in estimates) / 200 == pytest.approx(truth, rel=0.05)
    assert sum(found.low <= truth <= found.high for found in estimates) >= 0.92 * 200


def test_one_wrong_answer_is_no_proof_and_two_above_the_bound_are() -> None:
    evidence = traffic(AuditEvidence(), 100, 10)
    evidence.add(sample(1, wrong=True))
    assert not is_over(evidence.served(), 0.01)
    evidence.add(sample(2, wrong=True))
    assert is_over(evidence.served(), 0.01)
    assert not is_over(evidence.served(), 0.2)


def test_it_tightens_step_by_step_closes_and_opens_again_when_proof_comes() -> None:
    stats = RouteStats(NearMatchModel())
    traffic(stats.evidence, 400, 40)
    seen = [stats.level]
    for number in range(20):
        stats.add(sample(number, wrong=True))
        stats.step(0.02)
        seen.append(stats.level)
    assert seen == sorted(seen)
    assert set(seen) == set(range(CLOSED + 1))
    assert stats.threshold(0.02) > 1.0, "closed, nothing is served"

    closed_for = 0
    for number in range(100, 6000):
        stats.evidence.note_request(0.0, source="elsewhere")
        stats.add(sample(number, served=False, match_probability=0.97))
        stats.step(0.02)
        closed_for += stats.level == CLOSED
        if stats.level == 0:
            break
    assert closed_for > MIN_PROOF
    assert stats.level == 0


def test_it_opens_by_evidence_and_not_by_the_lack_of_it() -> None:
    nothing = AuditEvidence().above(0.0)
    assert next_level(CLOSED, nothing, nothing, 0.01) == CLOSED
    few = traffic(AuditEvidence(), 10_000, 5)
    for number in range(MIN_PROOF - 1):
        few.add(sample(number, served=False))
    assert next_level(CLOSED, nothing, few.above(0.0), 0.5) == CLOSED
    few.add(sample(99, served=False))
    assert next_level(CLOSED, nothing, few.above(0.0), 0.5) == CLOSED - 1


def test_levels_have_names_and_thresholds_that_rise() -> None:
    assert [budget_state(level) for level in range(CLOSED + 1)] == ["open", *["tightened"] * (CLOSED - 1), "closed"]
    steps = [tightening_of(level) for level in range(CLOSED)]
    assert steps == sorted(steps, key=lambda step: step or 0.0)
    assert tightening_of(CLOSED) is None


def test_doubtful_hits_are_audited_more_often_than_sure_ones() -> None:
    assert audit_probability(0.02, 0.05, 0.05) == pytest.approx(0.02)
    assert audit_probability(0.02, 0.5, 0.05) == pytest.approx(0.08)
    assert audit_probability(0.02, 0.0, 0.05) == pytest.approx(0.005)
    assert audit_probability(1.0, 0.5, 0.05) == 1.0
