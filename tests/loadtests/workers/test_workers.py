"""The bench of workers: what its card states."""

from __future__ import annotations

import argparse
from dataclasses import replace

from loadtests.workers.workers import _card, _Loop, _median

LOOP = _Loop(requests_per_s=1000.0, cpu_us_per_request=200.0, others_cpu_us=4.0, p99_ms=10.0, num_failed=0)


def test_growth_is_per_worker_and_separate_gateways_are_the_ideal() -> None:
    options = argparse.Namespace(connections=8, most=4)
    two = replace(LOOP, requests_per_s=1900.0)
    card = _card(options, one=LOOP, separate=replace(LOOP, requests_per_s=1950.0), two=two, many=LOOP)
    assert card.results["growth_per_worker"] == 0.95
    assert card.results["part_of_separate_gateways"] == 1900.0 / 1950.0
    assert card.failed is None
    failed = _card(options, one=LOOP, separate=LOOP, two=replace(two, num_failed=3), many=LOOP)
    assert failed.failed == "3 requests failed"


def test_medians_of_loops_and_every_failure() -> None:
    loops = [
        LOOP,
        replace(LOOP, requests_per_s=2000.0, num_failed=2),
        replace(LOOP, requests_per_s=9000.0, p99_ms=30.0),
    ]
    found = _median(loops)
    assert (found.requests_per_s, found.p99_ms, found.num_failed) == (2000.0, 10.0, 2)
