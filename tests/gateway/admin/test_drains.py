"""Deployments out of service by order: at once here, and everywhere that the store is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.access.audit_log import AuditLog
from gateway.access.identity import SYSTEM
from gateway.admin.api.request import AdminRequest
from gateway.admin.drains import SPACE, Drains
from gateway.errors import NotFound
from gateway.store.base import Store, StoreLoss, StoreUnavailable
from gateway.store.embedded import EmbeddedStore
from tests.gateway.admin.test_context import POLICY, _until
from tests.gateway.routing.fleet import fleet_policy, snapshot_of
from tests.gateway.stack import Stack, chat, running


async def test_an_order_takes_a_deployment_out_and_puts_it_back(tmp_path: Path) -> None:
    path = "/admin/api/deployments/small/drain"
    async with running(tmp_path) as stack:
        done = await stack.call({"drain": True, "reason": "new disk"}, admin=True, path=path)
        assert (done.status, done.json) == (200, {"deployment": "small", "drain": True})
        await stack.call(chat())
        assert (len(stack.small.received), len(stack.large.received)) == (0, 1)
        await stack.call({"drain": False}, admin=True, path=path)
        audit = (await stack.get("/admin/api/audit", admin=True)).json["entries"]
        assert [(line["action"], line["reason"]) for line in audit[-2:]] == [
            ("deployment.drain", "new disk"),
            ("deployment.take_back", ""),
        ]


async def test_a_deployment_that_nobody_knows_cannot_be_drained(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        path = "/admin/api/deployments/{}/drain"
        assert (await stack.call({"drain": True}, admin=True, path=path.format("nobody"))).status == 404
        bad = await stack.call({"drain": "yes"}, admin=True, path=path.format("small"))
        assert (bad.status, bad.error["param"]) == (400, "drain")


def ordering(name: str, *, drain: bool) -> AdminRequest:
    request = AdminRequest(
        {"type": "http", "method": "POST", "path": "/", "headers": [], "path_params": {"name": name}}
    )
    request.who, request.document = SYSTEM, {"drain": drain}
    return request


class Process:
    """One gateway process with two deployments, over a store that it shares."""

    def __init__(self, store: Store) -> None:
        self.live = snapshot_of(fleet_policy(2), lambda: 0.0).deployments
        self.changed = asyncio.Event()
        audit = AuditLog(store, wall=lambda: 1000.0)
        self.drains = Drains(lambda: self.live, store, audit, self.changed.set)

    @property
    def drained(self) -> list[str]:
        return [name for name, one in self.live.items() if one.is_draining]


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Store]:
    opened = EmbeddedStore(tmp_path / "shared.sqlite3", wall=lambda: 1000.0)
    yield opened
    await opened.aclose()


async def test_a_new_revision_does_not_put_a_drained_deployment_back(shared: Store) -> None:
    process = Process(shared)
    await process.drains.order(ordering("d1", drain=True))
    process.live = snapshot_of(fleet_policy(3), lambda: 0.0).deployments
    assert process.drained == []
    process.drains.apply()
    assert process.drained == ["d1"]


async def test_a_process_that_starts_finds_the_drains_of_the_others(shared: Store) -> None:
    first, second = Process(shared), Process(shared)
    await first.drains.order(ordering("d0", drain=True))
    following = asyncio.create_task(second.drains.run())
    async with asyncio.timeout(10):
        while second.drained != ["d0"]:
            await asyncio.sleep(0)
    assert not second.changed.is_set(), "nothing came back"
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_only_what_comes_back_has_its_health_looked_at(shared: Store) -> None:
    process = Process(shared)
    await process.drains.order(ordering("d0", drain=True))
    assert not process.changed.is_set()
    await process.drains.order(ordering("d0", drain=False))
    assert process.changed.is_set()
    assert process.drained == []


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        yield stack


async def test_a_drained_deployment_gets_nothing_new_until_it_is_taken_back(stack: Stack) -> None:
    drain = "/admin/api/deployments/small/drain"
    reply = await stack.call({"drain": True, "reason": "a new card"}, admin=True, path=drain)
    assert reply.status == 200, reply.body
    served = await stack.call(chat(temperature=0.5))
    assert served.headers["x-penstock-deployment"] == "large"
    states = (await stack.get("/admin/api/deployments", admin=True)).json["deployments"]
    assert {one["id"]: one["state"] for one in states} == {"small": "draining", "large": "ready"}
    await stack.call({"drain": False}, admin=True, path=drain)
    await _until(lambda: stack.gateway.room._deployments()["small"].is_ready)
    served = await stack.call(chat(temperature=0.6))
    assert served.headers["x-penstock-deployment"] == "small"


async def test_a_drain_that_outlived_its_deployment_can_be_taken_back(shared: Store) -> None:
    process = Process(shared)
    await process.drains.order(ordering("d1", drain=True))
    process.live = snapshot_of(fleet_policy(1), lambda: 0.0).deployments
    with pytest.raises(NotFound):
        await process.drains.order(ordering("d1", drain=True))
    await process.drains.order(ordering("d1", drain=False))
    assert await shared.keys(SPACE, limit=9) == ()
    with pytest.raises(NotFound):
        await process.drains.order(ordering("d1", drain=False))


class _Full(EmbeddedStore):
    """A store that takes lines of logs and no values."""

    async def put(self, space: str, key: str, value: bytes, **how: Any) -> int | None:
        raise StoreUnavailable(StoreLoss.FULL, "no room", was_sent=False)


async def test_a_drain_that_the_store_refuses_is_withdrawn_from_the_audit_log(tmp_path: Path) -> None:
    store = _Full(tmp_path / "full.sqlite3", wall=lambda: 1000.0)
    process = Process(store)
    with pytest.raises(StoreUnavailable):
        await process.drains.order(ordering("d1", drain=True))
    assert process.drained == []
    lines = await AuditLog(store, wall=lambda: 1000.0).entries()
    assert [line["action"] for line in lines] == ["deployment.drain", "deployment.drain.withdrawn"]
    assert lines[1]["detail"] == {"line": 1}
    await store.aclose()
