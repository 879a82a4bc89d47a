"""The queue refuses what would wait too long, and states when to come back."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from engine.frontend.core_client.queue_guard import QueueGuard, QueueLimits
from engine.frontend.request.errors import ApiError
from engine.protocol import Counters, Lane, LaneLoad, Load, StepReport
from tests.engine.frontend.conftest import StartFront, chat
from tests.engine.frontend.fake_core import LOAD

LIMITS = QueueLimits(max_waiting=10, max_wait_s=30.0, max_batch_wait_s=300.0)


def busy(interactive: float, long: float = 0.0, batch: float = 0.0) -> Load:
    """A core with this forecast wait in each lane, in seconds, that computes 1,000 tokens a second."""
    waits: dict[Lane, float] = {"interactive": interactive, "long": long, "batch": batch}
    lanes = {
        lane: LaneLoad(num_running=1, num_waiting=1, waiting_prompt_tokens=100, forecast_wait_s=wait_s)
        for lane, wait_s in waits.items()
    }
    return msgspec.structs.replace(LOAD, lanes=lanes, drain_tokens_per_s=1000.0)


def refusal(
    load: Load, *, lane: Lane = "interactive", num_open: int = 1, deadline_s: float | None = None, num_sent: int = 0
) -> ApiError | None:
    """What a request gets."""
    guard = QueueGuard(LIMITS)
    guard.sent([1] * num_sent, b"")
    try:
        guard.check(load, num_open=num_open, num_new=1, lane=lane, deadline_s=deadline_s)
    except ApiError as error:
        return error
    return None


def test_a_wait_within_the_limit_is_taken() -> None:
    assert refusal(busy(interactive=29.0)) is None


def test_a_forecast_above_the_limit_is_refused_until_it_will_have_drained() -> None:
    error = refusal(busy(interactive=42.3))
    assert error is not None
    assert (error.status, error.code, error.type) == (503, "server_is_overloaded", "service_unavailable_error")
    assert error.headers == {"x-penstock-shed-reason": "overload", "retry-after": "13"}


def test_each_lane_has_its_own_forecast_and_batch_more_patience() -> None:
    load = busy(interactive=1.0, long=31.0, batch=299.0)
    assert refusal(load) is None
    assert refusal(load, lane="long") is not None
    assert refusal(load, lane="batch") is None


def test_a_retry_is_never_requested_later_than_in_a_minute() -> None:
    error = refusal(busy(interactive=500.0))
    assert error is not None
    assert error.headers["retry-after"] == "60"


def test_tokens_on_their_way_to_the_core_count_until_it_reports() -> None:
    load = busy(interactive=29.5)
    assert refusal(load, num_sent=400) is None
    assert refusal(load, num_sent=600) is not None
    guard = QueueGuard(LIMITS)
    guard.sent([1] * 600, b"")
    guard.reported()
    guard.check(load, num_open=1, num_new=1, lane="interactive", deadline_s=None)


def test_prompts_that_begin_alike_count_once_until_the_core_has_reported_what_is_cached() -> None:
    guard = QueueGuard(LIMITS)
    for index in range(100):
        guard.sent([*range(400), index], b"tenant")
    guard.check(busy(interactive=29.5), num_open=1, num_new=1, lane="interactive", deadline_s=None)
    guard.sent([*range(400)], b"another tenant")
    with pytest.raises(ApiError):
        guard.check(busy(interactive=29.5), num_open=1, num_new=1, lane="interactive", deadline_s=None)


def test_a_deadline_that_the_queue_alone_will_pass_is_hopeless() -> None:
    error = refusal(busy(interactive=5.0), deadline_s=4.0)
    assert error is not None
    assert error.headers == {"x-penstock-shed-reason": "deadline", "x-should-retry": "false"}
    assert refusal(busy(interactive=5.0), deadline_s=6.0) is None


@pytest.mark.parametrize(("num_open", "retry_after"), [(11, "2"), (30, "14")])
def test_a_full_queue_is_refused_for_as_long_as_the_excess_takes(num_open: int, retry_after: str) -> None:
    error = refusal(busy(interactive=20.0), num_open=num_open)
    assert error is not None
    assert error.headers == {"x-penstock-shed-reason": "queue_full", "retry-after": retry_after}


async def test_tokens_on_their_way_count_on_behind_a_report_whose_load_is_older(start_front: StartFront) -> None:
    async with start_front() as running:
        core = await running.core()
        load = busy(interactive=29.999)
        core.announce(StepReport(outputs=[], load=load, counters=Counters()))
        while b"engine_running 1.0" not in (await running.client.get("/metrics")).content:
            pass
        first = asyncio.create_task(running.client.post("/v1/chat/completions", json=chat()))
        add = await core.next_add()
        load = msgspec.structs.replace(load, num_running=3)
        core.announce(StepReport(outputs=[], load=load, has_load=False, counters=Counters()))
        while b"engine_running 3.0" not in (await running.client.get("/metrics")).content:
            pass
        assert (await running.client.post("/v1/chat/completions", json=chat())).status_code == 503
        core.emit(add.seq_id, [1], "stop")
        assert (await first).status_code == 200


async def test_a_busy_core_s_forecast_reaches_the_client_as_a_503(start_front: StartFront) -> None:
    async with start_front() as running:
        core = await running.core()
        core.announce(StepReport(outputs=[], load=busy(interactive=35.0, batch=35.0), counters=Counters()))
        while b"engine_running 1.0" not in (await running.client.get("/metrics")).content:
            pass
        response = await running.client.post("/v1/chat/completions", json=chat())
        assert response.status_code == 503
        assert response.headers["retry-after"] == "5"
        error = response.json()["error"]
        assert error["code"] == "server_is_overloaded"
        degraded = error["degraded"]
        assert (degraded["reason"], degraded["lane"]) == ("overload", "interactive")
        assert (degraded["queue_depth"], degraded["predicted_wait_ms"]) == (0, 35000)
        assert "batch lane" in degraded["hint"]
        patient = await running.raw("POST", "/v1/chat/completions", chat(), "x-penstock-priority: batch\r\n")
        assert (await core.next_add()).lane == "batch"
        await patient.leave()
