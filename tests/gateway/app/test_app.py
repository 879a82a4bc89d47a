"""Probes, reload and drain of a running gateway."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.access.api_keys import KeyRing
from gateway.admin.views.live_state import LiveState
from gateway.deployments.live import LiveDeployment
from gateway.machine.machine_metrics import MachineMetrics
from gateway.machine.reports import WorkerReport, family_values
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.router import Router
from gateway.routing.snapshot import PolicySnapshot
from gateway.telemetry.metrics import GatewayMetrics
from gateway.upstreams.client import UpstreamClient
from routing_policies.policy.document import Policy
from tests.gateway.scripted import Wire, chunk, hang
from tests.gateway.stack import Reply, chat, encode, policy_text, running


def until(gate: asyncio.Event) -> object:
    async def script(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("hel"))
        await gate.wait()
        await wire.event(chunk(finish="stop"))
        await wire.event(b"[DONE]")
        await wire.end()

    return script


async def test_a_drain_lets_streams_finish_and_refuses_new_work(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        gate = asyncio.Event()
        stack.small.scripts = [until(gate)]  # type: ignore[list-item]
        under_way = asyncio.create_task(stack.call(chat(stream=True)))
        reader, writer = await stack.connect()
        writer.write(encode(chat())[:-1])  # a request that is only half here when the drain begins
        await asyncio.wait_for(stack.small.got_request.wait(), 2)
        await asyncio.sleep(0.02)

        stopping = asyncio.create_task(stack.gateway.stop(drain_timeout_s=5))
        await asyncio.sleep(0.05)
        writer.write(encode(chat())[-1:])
        refused = Reply(await asyncio.wait_for(reader.read(), 2))
        gate.set()
        reply = await under_way
        await stopping
        writer.close()

        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert refused.status == 503
        assert refused.headers["x-penstock-shed-reason"] == "draining"
        assert int(refused.headers["retry-after"]) == 1


async def test_a_drain_that_runs_out_of_time_ends_streams_with_an_error_event(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [until(asyncio.Event())]  # type: ignore[list-item]
        stack.large.scripts = [hang]
        stream = asyncio.create_task(stack.call(chat(stream=True)))
        plain = asyncio.create_task(stack.call(chat("big")))
        await asyncio.wait_for(stack.small.got_request.wait(), 2)
        await asyncio.wait_for(stack.large.got_request.wait(), 2)
        await asyncio.sleep(0.05)

        await stack.gateway.stop(drain_timeout_s=0.05)

        body = (await stream).body
        assert json.loads(body.rstrip().split(b"data: ")[-1])["error"]["code"] == "server_is_overloaded"
        assert b"[DONE]" not in body
        reply = await plain
        assert (reply.status, reply.headers["x-penstock-shed-reason"]) == (503, "draining")
        assert {line["outcome"] for line in stack.lines()} == {"shed"}


async def test_an_embedder_that_ends_late_does_not_hold_up_the_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    def note(name: str, aclose: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def noted() -> None:
            closed.append(name)
            await aclose()

        return noted

    async with running(tmp_path) as stack:
        stores, embedder = stack.gateway._stores, stack.gateway._embedder
        monkeypatch.setattr(stores, "aclose", note("stores", stores.aclose))
        monkeypatch.setattr(embedder, "aclose", note("embedder", embedder.aclose))
    assert closed == ["stores", "embedder"]


async def test_gauges_that_a_worker_lowered_rise_again_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as stack:
        gateway, worker = stack.gateway, GatewayMetrics()
        own = gateway.metrics.store_up.labels(), gateway.metrics.policy_reload_success.labels()
        machine = MachineMetrics(gateway.metrics)
        with monkeypatch.context() as patched:
            patched.setattr(gateway, "_machine", SimpleNamespace(set_gauges=machine.set_gauges))
            for value in (1.0, 0.0, 1.0):
                worker.store_up.labels().set(value)
                worker.policy_reload_success.labels().set(value)
                machine.take(1, WorkerReport(life="a", values=family_values(worker.instruments), live=LiveState()))
                gateway.metrics.instruments.refresh()
                assert [gauge.value for gauge in own] == [value, value]


async def test_requests_leave_no_garbage_for_the_collector(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reader, writer = await stack.connect()

        async def many(count: int) -> None:
            for _ in range(count):
                writer.write(encode(chat(), headers={"connection": "keep-alive"}))
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 ")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)

        async def garbage_of(count: int) -> int:
            gc.collect()
            gc.disable()
            try:
                await many(count)
                return gc.collect()
            finally:
                gc.enable()

        await many(50)
        # What an earlier test of this process held may go at any time, but not during each of three tries.
        unreachable = min([await garbage_of(300) for _ in range(3)])
        writer.close()

        assert unreachable < 100, f"{unreachable} objects in cycles after 300 requests"


OF_A_REVISION = (Policy, PolicySnapshot, Router, PlannedRoute, KeyRing, LiveDeployment, UpstreamClient)


async def test_policy_changes_leave_nothing_behind_even_without_the_collector(tmp_path: Path) -> None:
    """A busy process collects its oldest objects rarely, so what a revision held goes with the last use of it."""

    def live_objects() -> Counter[str]:
        return Counter(type(one).__name__ for one in gc.get_objects() if type(one) in OF_A_REVISION)

    async with running(tmp_path, settings={"policy.poll_s": 60}) as stack:

        async def change(number: int) -> None:
            text = policy_text(tmp_path, permits=8 + number % 5, first_token_ms=5000 + number)
            if number % 2:
                text = text.replace("large.sock", "elsewhere.sock")
            fresh = tmp_path / "policy.new"
            fresh.write_text(text)
            fresh.replace(tmp_path / "policy.yaml")
            await stack.gateway.control.look()
            assert stack.gateway.snapshot is not None
            assert stack.gateway.snapshot.policy.routes[0].timeouts.first_token_ms == 5000 + number
            assert (await stack.call(chat())).status == 200

        await change(0)
        gc.collect()
        gc.disable()
        try:
            before = live_objects()
            assert set(before) == {kind.__name__ for kind in OF_A_REVISION}
            for number in range(1, 41):
                await change(number)
            # Deployments that left close their connections first, late on a busy machine. Other tests' objects may go.
            for _ in range(400):
                if not live_objects() - before:
                    break
                await asyncio.sleep(0.05)
            assert not live_objects() - before
        finally:
            gc.enable()


def test_a_gateway_imports_no_library_that_only_some_settings_or_policies_need() -> None:
    """Conditions, encoders, images, Redis and DNS: each costs every process memory and time to start."""
    some = ["cel", "faiss", "onnxruntime", "tokenizers", "torch", "PIL", "redis", "dns", "authlib"]
    command = f"import sys, gateway.app.app; print([name for name in {some} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", command], capture_output=True, text=True).stdout == "[]\n"
