"""What audits prove of a route: an estimate with its interval, over a window."""

from __future__ import annotations

import pytest

from gateway.cache.audit.evidence import MAX_SAMPLES, WINDOW_S, AuditEvidence, wilson
from tests.gateway.cache.audit.test_error_budget import sample, traffic


@pytest.mark.parametrize(
    ("ratio", "count", "low", "high"), [(0.0, 10, 0.0, 0.2775), (0.5, 10, 0.2366, 0.7634), (0.1, 100, 0.0552, 0.1744)]
)
def test_the_interval_is_wilsons(ratio: float, count: float, low: float, high: float) -> None:
    assert wilson(ratio, count) == pytest.approx((low, high), abs=1e-3)
    assert wilson(0.3, 0) == (0.0, 1.0)


def test_wrong_answers_are_counted_over_all_requests_by_what_each_audit_stands_for() -> None:
    evidence = traffic(AuditEvidence(), 1000, 100)
    for number in range(10):
        evidence.add(sample(number, wrong=number == 0, weight=10.0))
    found = evidence.served()
    assert found.ratio == pytest.approx(0.01)
    assert found.low < found.ratio < found.high
    assert (found.num_audited, found.num_wrong, found.num_requests, found.num_hits) == (10, 1, 1000, 100)


def test_audits_skipped_under_load_do_not_hide_what_the_others_found() -> None:
    evidence = traffic(AuditEvidence(), 1000, 200)
    for number in range(10):
        evidence.add(sample(number, wrong=number < 2, weight=10.0))  # they stand for 100 of the 200
    assert evidence.served().ratio == pytest.approx(0.2 * 0.2)
    assert evidence.above(0.5).ratio == pytest.approx(0.2 * 0.2)


def test_what_is_older_than_the_window_no_longer_counts_and_memory_is_bounded() -> None:
    evidence = traffic(AuditEvidence(), 100, 10)
    for number in range(MAX_SAMPLES + 10):
        evidence.add(sample(number, wrong=True))
    assert len(list(evidence.samples)) == MAX_SAMPLES
    evidence.expire(WINDOW_S + 1000.0)
    assert evidence.served().num_audited == evidence.num_requests == 0


def test_a_reviewed_audit_counts_once_as_it_was_reviewed() -> None:
    evidence = traffic(AuditEvidence(), 10, 1)
    evidence.add(sample(1, wrong=True))
    evidence.add(sample(1, wrong=False))
    assert (evidence.served().num_audited, evidence.served().num_wrong) == (1, 0)


def test_a_low_probability_is_not_part_of_the_estimate_above_a_higher_threshold() -> None:
    evidence = traffic(AuditEvidence(), 100, 20)
    for number in range(10):
        evidence.add(sample(number, wrong=True, match_probability=0.8))
        evidence.add(sample(100 + number, match_probability=0.95))
    assert evidence.above(0.7).ratio == pytest.approx(0.1)
    assert evidence.above(0.9).ratio == 0.0
