"""The life of a policy and of keys over a real Redis: the same as over the embedded store."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.gateway.admin.handlers.test_policy import apply, in_force, slower, stored
from tests.gateway.policies.test_canary import CANARY, call, start
from tests.gateway.stack import Stack, chat
from tests.gateway.store.redis_server import RedisServer

PATIENCE_S = 60.0


async def replicas(exits: AsyncExitStack, folder: Path, url: str, num: int = 2) -> list[Stack]:
    made = []
    for number in range(num):
        own = folder / str(number)
        await asyncio.to_thread(own.mkdir)
        made.append(await exits.enter_async_context(stored(own, url, settings={"store.timeout_s": 0.5})))
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
        assert started.json["canary"]["revision"] in {(await call(one)).headers["x-penstock-policy"] for _ in range(20)}
        stopped = await one.call({"reason": "enough"}, admin=True, path=f"{CANARY}/stop")
        assert stopped.json["canary"]["ended_by"] == "local"
        key = (await one.call({"tenant": "shop"}, admin=True, path="/admin/api/keys")).json["key"]
        bearer = {"authorization": f"Bearer {key}"}
        while (await two.call(chat(), headers=bearer)).status != 200 or (await two.call(chat())).status != 401:
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
            assert (await stack.call(chat())).status == 200
            assert (await in_force(stack))["etag"] == seed["etag"]
    finally:
        own.kill()


async def test_a_redis_that_came_up_empty_gets_the_policy_back_from_those_that_run(tmp_path: Path) -> None:
    own = RedisServer(await asyncio.to_thread(_folder, tmp_path)).start()
    try:
        async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as exits:
            (one,) = await replicas(exits, tmp_path, own.url, 1)
            seed = await in_force(one)
            applied = (await apply(one, slower(seed["document"]), etag=seed["etag"])).json
            own.kill()
            await asyncio.to_thread(own.start)
            while not own.admin.keys("*revision*"):
                await asyncio.sleep(0.02)
            new_folder = await asyncio.to_thread(_folder, tmp_path, "new")
            two = await exits.enter_async_context(stored(new_folder, own.url, settings={"store.timeout_s": 0.5}))
            assert (await in_force(two))["etag"] == applied["etag"]
            assert (await in_force(one))["etag"] == applied["etag"]
            again = await apply(two, seed["document"], etag=applied["etag"])
            assert (again.status, again.json["revision"]["number"]) == (200, 3)
    finally:
        own.kill()


async def test_gateways_that_start_with_an_emptied_redis_serve_the_newest_revision_that_any_of_them_saw(
    tmp_path: Path,
) -> None:
    own = RedisServer(await asyncio.to_thread(_folder, tmp_path)).start()
    folders = [await asyncio.to_thread(_folder, tmp_path, name) for name in ("one", "two")]
    try:
        async with asyncio.timeout(PATIENCE_S):
            async with stored(folders[0], own.url) as one:
                seed = await in_force(one)
                async with stored(folders[1], own.url) as two:
                    second = (await apply(two, slower(seed["document"]), etag=seed["etag"])).json
                third = (await apply(one, seed["document"] + "# third\n", etag=second["etag"])).json
            own.kill()
            await asyncio.to_thread(own.start)
            async with stored(folders[1], own.url) as two:
                assert (await in_force(two))["etag"] == second["etag"]
                async with stored(folders[0], own.url) as one:
                    assert (await in_force(one))["etag"] == third["etag"]
                    while (await in_force(two))["etag"] != third["etag"]:
                        await asyncio.sleep(0.01)
    finally:
        own.kill()


async def test_a_copy_older_than_what_the_store_began_anew_with_is_left_alone(tmp_path: Path) -> None:
    own = RedisServer(await asyncio.to_thread(_folder, tmp_path)).start()
    folders = [await asyncio.to_thread(_folder, tmp_path, name) for name in ("old", "new")]
    try:
        async with asyncio.timeout(PATIENCE_S):
            async with stored(folders[0], own.url) as old:
                seed = await in_force(old)
                assert (await apply(old, slower(seed["document"]), etag=seed["etag"])).status == 200
            own.kill()
            await asyncio.to_thread(own.start)
            async with stored(folders[1], own.url) as new:
                begun = await in_force(new)
                assert begun["revision"]["number"] == 1
                async with stored(folders[0], own.url) as old:
                    assert (await in_force(old))["etag"] == begun["etag"]
    finally:
        own.kill()


def _folder(tmp_path: Path, name: str = "redis") -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder
