"""Live state of the processes that share a store: what adds up, and what is counted once."""

from __future__ import annotations

import pytest

from gateway.admin.views.live_state import DeploymentState, EngineReport, LiveState, added, of_machine
from gateway.admin.views.overview import deployment_state
from tests.gateway.admin.views.test_overview import lane


def deployment(**fields: object) -> DeploymentState:
    values = {
        "id": "small",
        "model": "tiny",
        "url": "unix:/s",
        "zone": None,
        "is_ready": True,
        "is_draining": False,
        "is_warming": False,
        "is_ejected": False,
        "in_flight": 3,
        "limit": 8,
        "waiting": 1,
        "forecast_ttft_ms": {},
        "forecast_tpot_ms": 1.0,
        "forecast_error_p50": 0.1,
        "forecast_error_p90": 0.3,
        "cache_trust": 0.8,
        "cost_per_mtok": None,
        "report": None,
        **fields,
    }
    return DeploymentState(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "ready"),
        ({"is_ready": False}, "down"),
        ({"is_ready": False, "is_warming": True}, "starting"),
        ({"is_ejected": True}, "ejected"),
        ({"is_ready": False, "is_draining": True}, "draining"),
    ],
)
def test_a_deployments_state_is_one_word(fields: dict[str, object], state: str) -> None:
    assert deployment_state(deployment(**fields)) == state


def test_permits_and_queues_of_processes_add_up_and_their_engine_is_one() -> None:
    reported = EngineReport(
        state="ready",
        running=5,
        waiting=0,
        max_num_seqs=16,
        step_ms=9.0,
        tokens_per_s=100.0,
        kv_total=100,
        kv_free=40,
        kv_cached=20,
    )
    one = LiveState(lanes=(lane(),), deployments=(deployment(report=reported),), cache_entries=7, cache_bytes=10)
    other = LiveState(
        lanes=(lane(waiting=3, predicted_wait_s=0.2),),
        deployments=(deployment(in_flight=1, report=reported, forecast_error_p50=0.4), deployment(id="new")),
        cache_entries=7,
        cache_bytes=12,
    )
    both = added([one, other])
    assert (both.lanes[0].waiting, both.lanes[0].max_queue, both.lanes[0].predicted_wait_s) == (5, 20, 0.5)
    assert (both.deployments[0].in_flight, both.deployments[0].limit) == (4, 16)
    assert both.deployments[0].forecast_error_p50 == 0.4
    assert both.deployments[0].report == reported
    assert [each.id for each in both.deployments] == ["small", "new"]


def test_a_machines_permits_are_the_control_processs_and_its_forecasts_the_slowest_workers() -> None:
    own = LiveState(
        lanes=(lane(waiting=5, drained_per_s=None),),
        deployments=(deployment(in_flight=7, limit=8, waiting=5),),
        cache_entries=3,
    )
    quick = deployment(in_flight=7, forecast_ttft_ms={"0-256": 10.0}, forecast_error_p50=0.1, is_ejected=True)
    slow = deployment(in_flight=7, forecast_ttft_ms={"0-256": 90.0}, forecast_error_p50=0.4, is_ejected=False)
    workers = [
        LiveState(lanes=(lane(waiting=5, drained_per_s=2.0, predicted_wait_s=0.5),), deployments=(quick,)),
        LiveState(lanes=(lane(waiting=5, drained_per_s=3.0, predicted_wait_s=1.5),), deployments=(slow,)),
    ]

    found = of_machine(own, workers)
    assert (found.lanes[0].waiting, found.lanes[0].drained_per_s, found.lanes[0].predicted_wait_s) == (5, 5.0, 1.5)
    one = found.deployments[0]
    assert (one.in_flight, one.limit, one.waiting) == (7, 8, 5)
    assert (one.forecast_ttft_ms, one.forecast_error_p50, one.is_ejected) == ({"0-256": 90.0}, 0.4, False)
    assert found.cache_entries == 3
    assert of_machine(own, []) is own
