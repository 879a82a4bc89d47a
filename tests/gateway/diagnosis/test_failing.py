"""Failed requests by deployment, and the finding for those that fail too many."""

from __future__ import annotations

from gateway.diagnosis.failing import failed_ratios, find_failing
from gateway.diagnosis.finding import Finding
from gateway.diagnosis.policy_lines import place_of
from gateway.diagnosis.samples import Samples
from gateway.diagnosis.window import Snapshot, Window
from tests.gateway.diagnosis.test_diagnose import POLICY

Counts = dict[tuple[str, str], float]
"""Requests by deployment and outcome."""


def window(before: Counts, now: Counts, ejections: float = 0.0) -> Window:
    def gateway(counts: Counts, num_ejected: float) -> Samples:
        requests = tuple(
            ({"route": "all", "deployment": name, "outcome": outcome}, num) for (name, outcome), num in counts.items()
        )
        ejected = (({"deployment": "large", "reason": "consecutive"}, num_ejected),)
        return Samples({"penstock_requests_total": requests, "penstock_ejections_total": ejected})

    after = {key: before.get(key, 0.0) + now.get(key, 0.0) for key in (*before, *now)}
    return Window([Snapshot(at=0.0, gateway=gateway(before, 1.0)), Snapshot(at=9.0, gateway=gateway(after, ejections))])


def found(now: Counts, ejections: float = 0.0) -> Finding | None:
    seen = window({("large", "upstream_failed"): 900.0}, now, ejections)
    return find_failing(seen, place_of(seen, POLICY), failed_ratios(seen))


def test_failures_are_a_share_of_the_deployments_own_requests_in_the_window() -> None:
    seen = window(
        {("large", "upstream_failed"): 900.0, ("small", "completed"): 10.0},
        {
            ("large", "upstream_failed"): 3.0,
            ("large", "completed"): 9.0,
            ("small", "completed"): 40.0,
            ("other", "failed"): 1.0,
            ("other", "upstream_timeout"): 1.0,
            ("other", "rejected"): 2.0,
            ("cache", "cached"): 50.0,
        },
    )
    assert failed_ratios(seen) == {"other": 0.5, "large": 0.25}


def test_a_deployment_that_fails_its_requests_is_named_with_evidence_and_what_to_do() -> None:
    finding = found({("large", "upstream_failed"): 30.0, ("large", "upstream_timeout"): 10.0}, ejections=3.0)
    assert finding is not None
    assert (finding.stage, finding.cause) == ("upstream", "upstream_failing")
    assert finding.summary == "Requests fail at large: 100% of them."
    evidence = {one.name: one.now for one in finding.evidence}
    assert evidence == {"failed at large": 1.0, "of them timed out": 10.0, "times large was taken out": 2.0}
    assert "penstock explain" in finding.lever
    assert finding.policy_path == "routes.all.select.fallback"


def test_of_several_the_worst_comes_first_and_requests_without_a_deployment_are_counted() -> None:
    finding = found({("large", "completed"): 5.0, ("large", "failed"): 5.0, ("", "failed"): 4.0})
    assert finding is not None
    assert finding.summary == "Requests fail at (none chosen), large: up to 100% of them."
    assert finding.policy_path == "routes.all.select.candidates"


def test_many_deployments_are_not_all_listed() -> None:
    finding = found({(f"d{number}", "failed"): 1.0 for number in range(9)})
    assert finding is not None
    assert finding.summary == "Requests fail at d0, d1, d2, d3, d4 and others: up to 100% of them."


def test_a_failure_in_a_hundred_is_no_finding() -> None:
    assert found({("large", "completed"): 99.0, ("large", "failed"): 1.0}) is None
    assert found({}) is None
