"""A whole gateway whose deployments come and go: by a list in the store, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.machine.shared_counts import TableFull
from gateway.routing.snapshot import PolicySnapshot, SnapshotBuilder
from gateway.telemetry.records.tape import read_tape
from tests.gateway.scripted import ScriptedUpstream, Wire, chunk
from tests.gateway.stack import Stack, chat, running

POLICY = """
schema_version: 1
deployments:
  - {{id: engine, model: tiny, cost_per_mtok: {{prompt: 1, completion: 1}},
      discover: {{list: engines, slow_start_s: {slow_start_s}, max_members: 3, path: /v1}}}}
routes:
  - {{id: main, select: {{policy: least_in_flight, candidates: [engine]}}}}
"""
PATH = "/admin/api/members/engines"


class World:
    """A gateway and upstreams that may be members."""

    def __init__(self, stack: Stack, upstreams: list[ScriptedUpstream]) -> None:
        self.stack = stack
        self.upstreams = upstreams

    def name(self, number: int) -> str:
        """The member's id."""
        return f"engine@127.0.0.1:{self.upstreams[number].port}"

    async def write(self, *numbers: int) -> None:
        """List these upstreams, and wait until they are in force."""
        members = [f"127.0.0.1:{self.upstreams[number].port}" for number in numbers]
        done = await self.stack.call({"members": members}, admin=True, path=PATH, method="PUT")
        assert done.status == 200, done.body
        expected = {self.name(number) for number in numbers}
        await until(lambda: expected == {name for name in self.lives() if "@" in name})
        await until(lambda: all(self.lives()[name].is_ready for name in expected))

    def lives(self) -> dict[str, Any]:
        """Deployments in force by id."""
        assert self.stack.gateway.snapshot is not None
        return dict(self.stack.gateway.snapshot.deployments)

    async def states(self) -> dict[str, str]:
        """Deployments on the admin page."""
        found = (await self.stack.get("/admin/api/deployments", admin=True)).json
        return {one["id"]: one["state"] for one in found["deployments"]}

    async def metric(self, start: str) -> dict[str, float]:
        """Samples whose line begins so, by the rest of their names."""
        text = (await self.stack.get("/metrics", admin=True)).body.decode()
        lines = [line for line in text.splitlines() if line.startswith(start)]
        return {name.removeprefix(start): float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(8.0):
        while not is_so():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def world(folder: Path, num: int = 2, slow_start_s: int = 0, **settings: Any) -> AsyncIterator[World]:
    async with AsyncExitStack() as exits:
        upstreams = [
            await exits.enter_async_context(ScriptedUpstream(folder / f"m{number}", tcp=True)) for number in range(num)
        ]
        policy = POLICY.format(slow_start_s=slow_start_s)
        stack = await exits.enter_async_context(running(folder, policy=policy, settings=settings))
        yield World(stack, upstreams)


def held(gate: asyncio.Event) -> Any:
    async def script(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("hel"))
        await gate.wait()
        await wire.event(chunk("lo", finish="stop"))
        await wire.event(b"[DONE]")
        await wire.end()

    return script


async def test_members_come_and_their_stream_finishes_when_they_go(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        assert (await found.stack.call(chat())).status == 503
        await found.write(0)
        gate = asyncio.Event()
        found.upstreams[0].scripts = [held(gate)]
        stream = asyncio.create_task(found.stack.call(chat(stream=True)))
        await asyncio.wait_for(found.upstreams[0].got_request.wait(), 2)
        await found.write(1)
        assert await found.states() == {found.name(1): "ready", found.name(0): "leaving"}
        assert (await found.stack.call(chat())).status == 200
        assert (len(found.upstreams[0].received), len(found.upstreams[1].received)) == (1, 1)
        gate.set()
        reply = await stream
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert found.upstreams[0].num_gone == 0


async def test_members_that_find_no_counts_come_a_moment_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, num_refused = SnapshotBuilder.build, 0

    def is_locked_at_first(self: SnapshotBuilder, *given: Any) -> PolicySnapshot:
        nonlocal num_refused
        if num_refused < 2:
            num_refused += 1
            raise TableFull("the table of shared counts is locked")
        return build(self, *given)

    async with world(tmp_path) as found:
        monkeypatch.setattr(SnapshotBuilder, "build", is_locked_at_first)
        await found.write(0)
        assert len(found.stack.lines("members_refused")) == num_refused == 2


async def test_a_member_that_returns_within_the_drain_continues(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        await found.write(0, 1)
        first = found.lives()[found.name(0)]
        await found.write(1)
        assert first.has_left
        await found.write(0, 1)
        assert found.lives()[found.name(0)] is first
        assert (first.has_left, first.is_ready) == (False, True)


async def test_an_empty_list_drains_all_and_a_lost_list_keeps_them(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        await found.write(0)
        await found.stack.gateway._stores.control.delete("members", "engines")
        gateway = found.stack.gateway
        await until(lambda: any(group.error for group in gateway._membership.groups(gateway.snapshot)))
        assert (await found.stack.call(chat())).status == 200
        assert await found.metric("penstock_discovery_up") == {'{deployment="engine"}': 0.0}
        shown = (await found.stack.get("/admin/api/deployments", admin=True)).json["groups"]
        assert (shown[0]["id"], shown[0]["source"], shown[0]["num_members"]) == ("engine", "list engines", 1)
        assert "no list" in shown[0]["error"]
        assert [line["name"] for line in found.stack.lines("members_unreadable")][-1] == "engines"
        await found.write()
        assert (await found.stack.call(chat())).status == 503
        assert await found.metric("penstock_discovery_up") == {'{deployment="engine"}': 1.0}


async def test_metrics_count_members_under_their_group(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        await found.write(0, 1)
        for _ in range(4):
            assert (await found.stack.call(chat())).status == 200
        text = (await found.stack.get("/metrics", admin=True)).body.decode()
        assert "127.0.0.1" not in text, "addresses would make labels without bound"
        assert found.stack.gateway.metrics.requests.labels("main", "engine", "completed").value == 4.0
        assert (await found.metric("penstock_cost_total"))['{deployment="engine"}'] > 0
        assert (await found.metric("penstock_concurrency_limit"))['{deployment="engine"}'] == 128.0
        states = await found.metric('penstock_discovery_members{deployment="engine",state=')
        assert states == {'"ready"}': 2.0, '"warming"}': 0.0, '"draining"}': 0.0, '"down"}': 0.0}


async def test_recordings_name_the_group_so_that_plans_find_it(tmp_path: Path) -> None:
    recorded: dict[str, Any] = {"telemetry.recorder.mode": "text"}
    async with world(tmp_path, **recorded) as found:
        await found.write(0)
        assert (await found.stack.call(chat())).headers["x-penstock-deployment"] == found.name(0)
    (request,) = (await asyncio.to_thread(read_tape, tmp_path / "recorded", 10)).requests
    assert request.deployment == "engine"


async def test_a_new_member_warms_up_beside_an_old_one(tmp_path: Path) -> None:
    async with world(tmp_path, slow_start_s=3600) as found:
        await found.write(0)
        found.lives()[found.name(0)].slow_start._begun_at.clear()  # as after an hour
        await found.write(0, 1)
        assert await found.states() == {found.name(0): "ready", found.name(1): "warming"}
        for _ in range(20):
            await found.stack.call(chat())
        assert len(found.upstreams[0].received) > 3 * len(found.upstreams[1].received)


async def test_members_beyond_the_largest_number_are_left_out_and_shown(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        members = [f"127.0.0.1:{port}" for port in (1, 2, 3, 4)]
        await found.stack.call({"members": members}, admin=True, path=PATH, method="PUT")
        await until(lambda: len(found.lives()) == 3)
        shown = (await found.stack.get("/admin/api/deployments", admin=True)).json["groups"]
        assert (shown[0]["num_members"], shown[0]["num_left_out"]) == (3, 1)


async def test_explain_and_drain_name_members(tmp_path: Path) -> None:
    async with world(tmp_path) as found:
        await found.write(0, 1)
        request = {"request": {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}}
        shown = (await found.stack.call(request, admin=True, path="/admin/api/explain")).json
        assert {one["id"] for one in shown["candidates"]} == {found.name(0), found.name(1)}
        path = f"/admin/api/deployments/{found.name(0).replace(':', '%3A')}/drain"
        assert (await found.stack.call({"drain": True}, admin=True, path=path)).status == 200
        await found.stack.call(chat())
        assert (len(found.upstreams[0].received), len(found.upstreams[1].received)) == (0, 1)
        models = (await found.stack.get("/v1/models")).json["data"]
        assert {one["id"] for one in models} == {"auto", "tiny", "engine"}
