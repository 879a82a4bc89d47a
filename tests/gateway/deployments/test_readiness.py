"""A deployment that is starting is capacity to come: requests wait for it, as far as they can and its route has nobody
else. Fault rows 24 and 36: all down, and down until warm."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from tests.gateway.scripted import Wire, chunk
from tests.gateway.stack import Stack, chat, encode, policy_text, running

PATIENCE_S = 30.0
WEIGHTS = {"ready": False, "state": "warming", "phases": [{"name": "weights", "seconds": 2.0}]}


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.01)


async def warming(stack: Stack) -> None:
    """Both deployments are starting, and the gateway knows."""
    for upstream in (stack.small, stack.large):
        upstream.is_ready, upstream.reported = False, WEIGHTS
    await stack.gateway._prober.probe_all()


def waiting(stack: Stack) -> int:
    return sum(lane.num_waiting for lane in stack.gateway._current().lanes.values())


async def ends(stack: Stack) -> set[str]:
    text = (await stack.get("/metrics", admin=True)).body.decode()
    return {line for line in text.splitlines() if line.startswith("penstock_start_waits_total{")}


async def test_requests_wait_for_a_deployment_that_is_starting(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await warming(stack)
        requested = [asyncio.create_task(stack.call(chat(stream=is_stream))) for is_stream in (True, False)]
        patient = {"x-stainless-read-timeout": "60"}
        requested.append(asyncio.create_task(stack.call(chat(), headers=patient)))
        await until(lambda: waiting(stack) == 3)
        assert not stack.small.received
        stack.small.is_ready = True

        replies = await asyncio.gather(*requested)
        assert [reply.status for reply in replies] == [200, 200, 200]
        assert {reply.headers["x-penstock-deployment"] for reply in replies} == {"small"}
        assert await ends(stack) == {'penstock_start_waits_total{end="ready",route="main"} 3.0'}
        shown = (await stack.get(f"/admin/api/requests/{replies[0].headers['x-request-id']}", admin=True)).json
        assert "for a deployment to start" in shown["request"]["detail"]
        assert next(stage["ms"] for stage in shown["request"]["stages"] if stage["stage"] == "queue") > 0


async def test_who_cannot_wait_so_long_is_refused_at_once_with_the_time_of_the_start(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await warming(stack)
        begun = time.monotonic()
        reply = await stack.call(chat(), headers={"x-stainless-read-timeout": "3"})
        assert time.monotonic() - begun < 3.0
        assert (reply.status, reply.error["code"]) == (503, "server_is_overloaded")
        assert reply.headers["x-penstock-shed-reason"] == "overload"
        assert reply.headers["x-should-retry"] == "true"
        assert 5 <= int(reply.headers["retry-after"]) <= 8, "ten seconds, of which two are over"
        assert "starting" in reply.error["message"]
        assert reply.error["degraded"]["predicted_wait_ms"] > 5000
        assert not stack.small.received


async def test_a_lanes_target_counts_unless_it_would_rather_serve_late(tmp_path: Path) -> None:
    text = policy_text(tmp_path)
    strict = text.replace("weight: 8,", "weight: 8, slo: {ttft_p95_ms: 500},")
    async with running(tmp_path, policy=strict) as stack:
        await warming(stack)
        reply = await stack.call(chat())
        assert (reply.status, reply.headers["x-penstock-shed-reason"]) == (503, "overload")

        lenient = strict.replace("ttft_p95_ms: 500}", "ttft_p95_ms: 500}, on_overload: [max_tokens]")
        (tmp_path / "policy.yaml").write_text(lenient)
        await until(lambda: "shed" not in stack.gateway._current().lanes["interactive"].rules.on_overload)
        requested = asyncio.create_task(stack.call(chat()))
        await until(lambda: waiting(stack) == 1)
        stack.large.is_ready = True
        assert (await requested).headers["x-penstock-deployment"] == "large"


async def test_whoever_is_ready_is_called_before_anybody_waits(tmp_path: Path) -> None:
    """Row 36: one is down until it is warm, the other answers meanwhile."""
    text = policy_text(tmp_path).replace("candidates: [small]}", "candidates: [small], fallback: [large]}")
    async with running(tmp_path, policy=text) as stack:
        stack.small.is_ready, stack.small.reported = False, WEIGHTS
        await stack.gateway._prober.probe_all()
        for model in ("auto", "solo"):
            reply = await stack.call(chat(model), headers={"x-stainless-read-timeout": "2"})
            assert reply.headers["x-penstock-deployment"] == "large"
        assert await ends(stack) == set()


async def test_nobody_waits_for_the_dead(tmp_path: Path) -> None:
    """Row 24: all are down, and none states that it is coming back."""
    async with running(tmp_path) as stack:
        await warming(stack)
        requested = asyncio.create_task(stack.call(chat()))
        await until(lambda: waiting(stack) == 1)
        await stack.small.close()
        await stack.large.close()
        reply = await requested
        assert (reply.status, reply.headers["x-penstock-shed-reason"]) == (503, "overload")
        assert (await stack.call(chat())).status == 503
        assert await ends(stack) == {'penstock_start_waits_total{end="lost",route="main"} 1.0'}


async def test_the_lanes_queue_bounds_who_waits_for_a_start(tmp_path: Path) -> None:
    async with running(tmp_path, max_queue=2) as stack:
        await warming(stack)
        requested = [asyncio.create_task(stack.call(chat())) for _ in range(2)]
        await until(lambda: waiting(stack) == 2)
        reply = await stack.call(chat())
        assert (reply.status, reply.headers["x-penstock-shed-reason"]) == (503, "queue_full")
        stack.small.is_ready = True
        assert [reply.status for reply in await asyncio.gather(*requested)] == [200, 200]


async def test_who_leaves_while_a_deployment_starts_is_never_sent(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await warming(stack)
        _, writer = await stack.connect()
        writer.write(encode(chat()))
        await until(lambda: waiting(stack) == 1)
        writer.close()
        await until(lambda: waiting(stack) == 0)
        stack.small.is_ready = True
        await stack.gateway._prober.probe_all()
        assert (await stack.call(chat())).status == 200
        assert len(stack.small.received) == 1
        assert 'penstock_start_waits_total{end="left",route="main"} 1.0' in await ends(stack)


async def test_an_engine_that_is_killed_is_waited_for_until_it_is_warm(tmp_path: Path) -> None:
    """Row 36: the stream under way gets an error event, the next request waits for the restart."""

    async def die(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("hel"))
        stack.small.is_ready, stack.small.reported = False, {"state": "down"}
        wire.abort()

    async with running(tmp_path) as stack:
        stack.small.scripts = [die]
        broken = await stack.call(chat("solo", stream=True))
        assert b'"error"' in broken.body
        assert b"[DONE]" not in broken.body
        await stack.gateway._prober.probe_all()
        requested = asyncio.create_task(stack.call(chat("solo", stream=True)))
        await until(lambda: waiting(stack) == 1)
        stack.small.reported = WEIGHTS
        stack.small.is_ready = True
        assert b"[DONE]" in (await requested).body
