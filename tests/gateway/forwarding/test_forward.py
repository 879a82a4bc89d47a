"""A client that leaves, at every place of a request's way: the upstream's connection is closed, nothing is stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.admission.gate import AdmissionDecision
from gateway.forwarding.forward import Forwarder
from tests.gateway.routing.groups import GROUP, Groups
from tests.gateway.scripted import Wire, chunk, hang
from tests.gateway.stack import Stack, chat, encode, running

PROMPTLY_S = 0.1


async def one_chunk_then_hang(wire: Wire) -> None:
    await wire.start_stream()
    await wire.event(chunk("hel"))
    await wire.is_gone.wait()


async def head_then_hang(wire: Wire) -> None:
    await wire.start_stream()
    await wire.is_gone.wait()


async def half_a_body_then_hang(wire: Wire) -> None:
    await wire.send(b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{"id":')
    await wire.is_gone.wait()


async def recorded(stack: Stack) -> dict[str, Any]:
    for _ in range(100):
        if lines := stack.lines():
            return lines[-1]
        await asyncio.sleep(0.005)
    raise AssertionError("the request was not recorded")


@pytest.mark.parametrize("how", ["fin", "reset"])
@pytest.mark.parametrize(
    ("script", "is_stream", "place"),
    [
        (hang, True, "prefill"),
        (hang, False, "prefill"),
        (head_then_hang, True, "prefill"),
        (one_chunk_then_hang, True, "decode"),
        (half_a_body_then_hang, False, "prefill"),
    ],
)
async def test_leaving_closes_the_upstream_within_100_ms(
    tmp_path: Path, script: Callable[[Wire], Any], is_stream: bool, place: str, how: str
) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [script]
        reader, writer = await stack.connect()
        writer.write(encode(chat(stream=is_stream)))
        await asyncio.wait_for(stack.small.got_request.wait(), 2)
        if script is one_chunk_then_hang:
            await asyncio.wait_for(reader.readuntil(b"hel"), 2)

        left_at = time.monotonic()
        if how == "reset":
            writer.transport.abort()
        else:
            writer.close()
        await asyncio.wait_for(stack.small.gone.wait(), 2)

        assert time.monotonic() - left_at < PROMPTLY_S
        line = await recorded(stack)
        assert (line["outcome"], line["status"], line["cancelled_while"]) == ("cancelled", 499, place)
        assert len(stack.lines()) == 1


async def test_leaving_the_queue_sends_nothing_upstream(tmp_path: Path) -> None:
    async with running(tmp_path, permits=1) as stack:
        stack.small.scripts = [hang]
        _, first = await stack.connect()
        first.write(encode(chat("solo")))
        await asyncio.wait_for(stack.small.got_request.wait(), 2)
        _, second = await stack.connect()
        second.write(encode(chat("solo")))
        live = stack.gateway._current().deployments["small"]
        while not live.limiter.num_waiting:
            await asyncio.sleep(0.001)

        second.close()
        line = await recorded(stack)

        assert (line["outcome"], line["cancelled_while"]) == ("cancelled", "queued")
        assert live.limiter.num_waiting == 0
        assert len(stack.small.received) == 1
        first.close()


async def test_leaving_while_a_connection_is_made_opens_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [hang]
        _, first = await stack.connect()
        first.write(encode(chat("solo")))  # takes the connection that a probe left behind
        await asyncio.wait_for(stack.small.got_request.wait(), 2)
        is_connecting = asyncio.Event()

        async def connect(*_: Any) -> None:
            is_connecting.set()
            await asyncio.Event().wait()

        monkeypatch.setattr("gateway.upstreams.client.Connector.connect", connect)
        _, second = await stack.connect()
        second.write(encode(chat("solo")))
        await asyncio.wait_for(is_connecting.wait(), 2)
        second.close()
        line = await recorded(stack)

        assert (line["outcome"], line["cancelled_while"]) == ("cancelled", "connecting")
        assert len(stack.small.received) == 1
        first.close()


async def test_a_permit_freed_by_a_leaver_goes_to_the_next_in_the_queue(tmp_path: Path) -> None:
    async with running(tmp_path, permits=1) as stack:
        stack.small.scripts = [hang]
        _, first = await stack.connect()
        first.write(encode(chat("solo")))
        await asyncio.wait_for(stack.small.got_request.wait(), 2)
        waiting = asyncio.create_task(stack.call(chat("solo")))
        live = stack.gateway._current().deployments["small"]
        while not live.limiter.num_waiting:
            await asyncio.sleep(0.001)

        first.close()

        assert (await waiting).status == 200


async def test_leaving_while_the_body_is_sent_is_a_cancelled_request(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        _, writer = await stack.connect()
        writer.write(encode(chat())[:-5])
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.close()

        assert (await recorded(stack))["outcome"] == "cancelled"
        assert stack.small.received == []


async def test_a_storm_of_leavers_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path, permits=4, max_queue=500) as stack:

        async def leave_after(delay_s: float, is_stream: bool) -> None:
            _, writer = await stack.connect()
            writer.write(encode(chat("solo", stream=is_stream)))
            await asyncio.sleep(delay_s)
            writer.transport.abort()

        await asyncio.gather(*(leave_after(index % 20 / 1000, index % 2 == 0) for index in range(200)))
        await stack.until_idle()
        stack.check_integrity()

        assert (await stack.call(chat("solo"))).status == 200
        await stack.until_idle()
        assert len(stack.lines()) == 201
        assert {line["outcome"] for line in stack.lines()} <= {"cancelled", "completed"}


async def test_cancellations_are_counted_by_place(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [hang]
        _, writer = await stack.connect()
        writer.write(encode(chat()))
        await asyncio.wait_for(stack.small.got_request.wait(), 2)
        writer.close()
        await recorded(stack)

        metrics = (await stack.get("/metrics", admin=True)).body.decode()

        assert 'penstock_cancelled_upstream_total{place="prefill"} 1.0' in metrics
        assert 'penstock_cancel_seconds_count{place="prefill"} 1.0' in metrics
        assert 'penstock_requests_total{deployment="small",outcome="cancelled",route="main"} 1.0' in metrics


def test_a_cascade_goes_on_with_another_model_and_never_with_a_member_of_the_first_ones_group() -> None:
    snapshot = Groups(candidates=f"{GROUP}, cloud").of("a", "b")
    for live in snapshot.deployments.values():
        live.is_ready = True
    unused: Any = None
    forwarder = Forwarder(
        clock=lambda: 0.0, metrics=unused, budget=unused, room=unused, workers=unused, draw_seed=unused
    )
    request: Any = SimpleNamespace(lane=SimpleNamespace(id="interactive"))
    work: Any = SimpleNamespace(
        planned=snapshot.router.match("auto", None, {}),
        ctx=SimpleNamespace(snapshot=snapshot, routing_request=None),
        admitted=AdmissionDecision(unused, request),
    )
    found = forwarder._successor(work, f"{GROUP}@a:8000")
    assert found is snapshot.deployments["cloud"]
    found.is_ready = False
    assert forwarder._successor(work, f"{GROUP}@a:8000") is None
