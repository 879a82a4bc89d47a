"""The bench of gateways that share a Redis: it kills its processes, and nothing older than a second is lost."""

from __future__ import annotations

import pytest

from tests.loadtests.bench import bench


@pytest.mark.e2e
def test_what_is_stored_is_given_elsewhere_and_survives_a_killed_gateway_and_a_killed_redis() -> None:
    record = bench("replicas", "--writes", "3", "--seconds", "1.5", "--rate", "16")
    assert record["exact_elsewhere_p99_s"] > 0
    assert record["similar_elsewhere_p99_s"] > 0
    for killed in ("gateway", "redis"):
        assert record[f"{killed}_killed_writes"] > 2
        assert record[f"{killed}_killed_lost_older"] == 0
    assert record["policies_applied"] > 0
    assert record["policies_lost"] == record["audit_records_lost"] == 0
