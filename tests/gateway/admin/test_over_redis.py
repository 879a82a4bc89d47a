"""The life of a policy and of keys over a real Redis: the same as over the embedded store."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.gateway.admin.test_canary import CANARY, ask, start
from tests.gateway.admin.test_policy_life import apply, in_force, slower, stored
from tests.gateway.stack import Stack, chat
from tests.gateway.store.redis_server import RedisServer

PATIENCE_S = 60.0


async def replicas(exits: AsyncExitStack, folder: Path, url: str, num: int = 2) -> list[Stack]:
    made = []
    for number in range(num):
        own = folder / str(number)
        await asyncio.to_thread(own.mkdir)
        made.append(await exits.enter_async_context(stored(own, url, store_timeout_s=0.5)))
    return made


async def test_revisions_keys_and_canaries_are_shared_through_redis(tmp_path: Path, redis: RedisServer) -> None:
    redis.admin.flushall()
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as exits:
        one, two = await replicas(exits, tmp_path, redis.url)
        seed = await in_force(one)
        assert (await in_force(two))["etag"] == seed["etag"]
        tenant = slower(seed["document"]).replace("routes:\n", "tenants: [{id: shop}]\nroutes:\n")
        applied = (await apply(one, tenant, etag=seed["etag"])).json
        while (await in_force(two))["etag"] != applied["etag"]:
            await asyncio.sleep(0.01)
        assert (await apply(two, seed["document"], etag=seed["etag"])).status == 412
        started = await start(two, tenant.replace("[small, large]", "[large, small]"))
        while (await one.get(CANARY, admin=True)).json["canary"] is None:
            await asyncio.sleep(0.01)
        assert started.json["canary"]["revision"] in {(await ask(one)).headers["x-penstock-policy"] for _ in range(20)}
        stopped = await one.ask({"reason": "enough"}, admin=True, path=f"{CANARY}/stop")
        assert stopped.json["canary"]["ended_by"] == "local"
        key = (await one.ask({"tenant": "shop"}, admin=True, path="/admin/api/keys")).json["key"]
        bearer = {"authorization": f"Bearer {key}"}
        while (await two.ask(chat(), headers=bearer)).status != 200 or (await two.ask(chat())).status != 401:
            await asyncio.sleep(0.01)
        assert (await two.get("/admin/api/audit/verify", admin=True)).json["ok"] is True


async def test_a_redis_that_is_gone_costs_no_request_and_refuses_changes(tmp_path: Path, redis: RedisServer) -> None:
    own = RedisServer(await asyncio.to_thread(_folder, tmp_path)).start()
    try:
        async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as exits:
            (stack,) = await replicas(exits, tmp_path, own.url, 1)
            seed = await in_force(stack)
            own.kill()
            refused = await apply(stack, slower(seed["document"]), etag=seed["etag"])
            assert (refused.status, refused.error["code"]) == (503, "store_unavailable")
            assert (await stack.ask(chat())).status == 200
            assert (await in_force(stack))["etag"] == seed["etag"]
    finally:
        own.kill()


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "redis"
    folder.mkdir()
    return folder
