"""Keys and admins when the store comes back empty or older: what was good stays good, what was over stays over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.admin.test_access import NOBODY, PASSWORD, get, log_in, post, with_tenants
from tests.gateway.stack import Stack, chat, running
from tests.gateway.store.conftest import open_at
from tests.gateway.store.redis_server import RedisServer

PATIENCE_S = 60.0


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that only this test uses; it writes to disk only when it is given to."""
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.kill()


@asynccontextmanager
async def gateway(folder: Path, store: str) -> AsyncIterator[Stack]:
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    settings = {"store.address": store, "store.timeout_s": 0.5}
    async with running(folder, policy=with_tenants(folder), settings=settings) as stack:
        yield stack


def lose_everything(server: RedisServer) -> None:
    server.kill()
    server.start()


def remove_file(store: Path) -> None:
    for file in store.parent.glob(f"{store.name}*"):
        file.unlink()


async def new_key(stack: Stack, id: str) -> str:
    key: str = (await post(stack, "keys", {"tenant": "shop", "id": id})).json["key"]
    return key


async def status(stack: Stack, key: str) -> int:
    return (await stack.call(chat("solo"), headers={"authorization": f"Bearer {key}"})).status


async def until_known(stack: Stack, key: str) -> None:
    while await status(stack, key) != 200:
        await asyncio.sleep(0.01)


def names_in(server: RedisServer) -> set[str]:
    """Keys, admins and tokens that this Redis has."""
    found = server.admin.zrange("penstock:{access}:i", 0, -1)
    return {name.decode() for name in found if name.startswith((b"key/", b"admin/", b"token/"))}


async def until_back(server: RedisServer, names: set[str]) -> None:
    while await asyncio.to_thread(names_in, server) != names:
        await asyncio.sleep(0.01)


async def restorations(stack: Stack) -> list[dict[str, Any]]:
    token = {"authorization": f"Bearer {stack.admin_token}"}
    reply = await get(stack, "audit?limit=500", token)
    if reply.status != 200:
        assert reply.error["code"] == "store_unavailable"  # it has not noticed yet that the store is back
        return []
    return [entry["detail"] for entry in reply.json["entries"] if entry["action"] == "access.restore"]


async def test_a_store_that_is_emptied_gets_keys_and_admins_back_and_no_request_fails(
    tmp_path: Path, own: RedisServer
) -> None:
    async with asyncio.timeout(PATIENCE_S), gateway(tmp_path / "one", own.url) as one:
        key, revoked = await new_key(one, "web"), await new_key(one, "old")
        assert (await post(one, "keys/shop/old/revoke", {})).status == 200
        assert (await post(one, "admins", {"name": "anna", "role": "admin", "password": PASSWORD})).status == 201
        session = await log_in(one, "anna")
        token = (await post(one, "tokens", {"name": "ci"}, session)).json["token"]
        before = names_in(own)
        own.admin.flushall()
        requested = [(await status(one, key), await status(one, revoked)) for _ in range(40)]
        assert set(requested) == {(200, 401)}
        await until_back(own, before)
        assert (await get(one, "policy", NOBODY)).status == 401  # no door opens
        assert (await get(one, "policy", {"authorization": f"Bearer {token}"})).status == 200
        async with gateway(tmp_path / "two", own.url) as two:
            assert (await status(two, key), await status(two, revoked)) == (200, 401)
            assert (await get(two, "policy", await log_in(two, "anna"))).status == 200
            assert (await get(two, "audit/verify", {"authorization": f"Bearer {token}"})).json["ok"] is True
        while not await restorations(one):
            await asyncio.sleep(0.01)
        assert await restorations(one) == [{"keys": 2, "admins": 1, "tokens": 1, "over": 1}]
        assert one.lines("access_restored")


async def test_a_key_revoked_stays_revoked_when_an_older_state_of_the_store_returns(
    tmp_path: Path, own: RedisServer
) -> None:
    async with asyncio.timeout(PATIENCE_S), gateway(tmp_path / "one", own.url) as one:
        key, leaked = await new_key(one, "web"), await new_key(one, "leaked")
        own.admin.save()
        assert (await post(one, "keys/shop/leaked/revoke", {"reason": "leaked"})).status == 200
        later = await new_key(one, "later")
        await asyncio.to_thread(lose_everything, own)
        while "key/shop/later" not in names_in(own):
            assert (await status(one, leaked), await status(one, key), await status(one, later)) == (401, 200, 200)
        while not await restorations(one):
            await asyncio.sleep(0.01)
        async with gateway(tmp_path / "two", own.url) as two:
            assert (await status(two, leaked), await status(two, key), await status(two, later)) == (401, 200, 200)
        assert await restorations(one) == [{"keys": 2, "admins": 0, "tokens": 0, "over": 1}]


async def test_a_gateway_that_starts_over_an_emptied_store_gives_it_what_was_stored(
    tmp_path: Path, own: RedisServer
) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async with gateway(tmp_path / "one", own.url) as one:
            key, revoked = await new_key(one, "web"), await new_key(one, "old")
            assert (await post(one, "keys/shop/old/revoke", {})).status == 200
            assert (await post(one, "admins", {"name": "anna", "role": "admin", "password": PASSWORD})).status == 201
        assert (tmp_path / "one" / "keys.last.json").stat().st_mode & 0o077 == 0
        await asyncio.to_thread(lose_everything, own)
        async with gateway(tmp_path / "one", own.url) as one:
            assert (await status(one, key), await status(one, revoked)) == (200, 401)
            assert (await get(one, "policy", NOBODY)).status == 401
            assert (await get(one, "policy", await log_in(one, "anna"))).status == 200
            assert names_in(own) == {"key/shop/web", "key/shop/old", "admin/anna"}


async def test_a_revocation_that_was_stored_outlives_a_start_over_an_older_store(
    tmp_path: Path, own: RedisServer
) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async with gateway(tmp_path / "one", own.url) as one:
            leaked = await new_key(one, "leaked")
            own.admin.save()
            assert (await post(one, "keys/shop/leaked/revoke", {})).status == 200
        await asyncio.to_thread(lose_everything, own)
        async with gateway(tmp_path / "one", own.url) as one, gateway(tmp_path / "two", own.url) as two:
            assert (await status(one, leaked), await status(two, leaked)) == (401, 401)


async def test_replicas_that_give_back_at_once_agree_and_each_record_is_given_back_once(
    tmp_path: Path, own: RedisServer
) -> None:
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as exits:
        stacks = [await exits.enter_async_context(gateway(tmp_path / str(i), own.url)) for i in range(3)]
        keys = [await new_key(stacks[i % 3], f"k{i}") for i in range(12)]
        for stack in stacks:
            for key in keys:
                await until_known(stack, key)
        assert (await post(stacks[1], "keys/shop/k3/revoke", {})).status == 200
        while await status(stacks[0], keys[3]) == 200 or await status(stacks[2], keys[3]) == 200:
            await asyncio.sleep(0.01)
        own.admin.flushall()
        await until_back(own, {f"key/shop/k{i}" for i in range(12)})
        for _ in range(10):
            for stack in stacks:
                notified = [await status(stack, key) for key in keys]
                assert notified == [401 if i == 3 else 200 for i in range(12)]
        while sum(detail["keys"] for detail in await restorations(stacks[0])) < 12:
            await asyncio.sleep(0.01)
        assert sum(detail["keys"] for detail in await restorations(stacks[2])) == 12
        for stack in stacks:  # each names the line that it knew, and the chain is whole again
            await new_key(stack, f"last{stacks.index(stack)}")
        for stack in stacks:
            token = {"authorization": f"Bearer {stack.admin_token}"}
            assert (await get(stack, "audit/verify", token)).json["ok"] is True


async def test_a_gateway_cut_off_meanwhile_learns_of_a_revocation_in_the_store_that_began_anew(
    tmp_path: Path, own: RedisServer
) -> None:
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as exits:
        one, two = [await exits.enter_async_context(gateway(tmp_path / str(i), own.url)) for i in range(2)]
        keys = [await new_key(one, f"k{i}") for i in range(3)]
        for key in keys:
            await until_known(two, key)
        checks = two.gateway.control.directory
        async with checks.lock:  # it checks nothing while others go on
            own.admin.flushall()
            await until_back(own, {f"key/shop/k{i}" for i in range(3)})
            assert (await post(one, "keys/shop/k0/revoke", {})).status == 200
            for i in range(8):
                await new_key(one, f"more{i}")
        while await status(two, keys[0]) != 401:
            await asyncio.sleep(0.01)


async def test_a_deleted_admin_and_a_deleted_token_do_not_come_back(tmp_path: Path, own: RedisServer) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async with gateway(tmp_path / "one", own.url) as one:
            for name in ("anna", "bob", "carl"):
                assert (await post(one, "admins", {"name": name, "role": "admin", "password": PASSWORD})).status == 201
            bobs = (await post(one, "tokens", {"name": "ci"}, await log_in(one, "bob"))).json["token"]
            carls = (await post(one, "tokens", {"name": "ci"}, await log_in(one, "carl"))).json
            own.admin.save()
            assert (await one.call(admin=True, path="/admin/api/admins/bob", method="DELETE")).status == 200
            gone = await one.call(admin=True, path=f"/admin/api/tokens/{carls['id']}", method="DELETE")
            assert gone.status == 200
            await asyncio.to_thread(lose_everything, own)
            while not await restorations(one):
                await asyncio.sleep(0.01)
            async with gateway(tmp_path / "two", own.url) as two:
                for stack in (one, two):
                    assert (await post(stack, "login", {"name": "bob", "password": PASSWORD}, NOBODY)).status == 401
                    for token in (bobs, carls["token"]):
                        assert (await get(stack, "policy", {"authorization": f"Bearer {token}"})).status == 401
                    admins = (await get(stack, "admins", {"authorization": f"Bearer {one.admin_token}"})).json
                    assert [admin["name"] for admin in admins.get("admins", [])] in (["anna", "carl"], [])
            again = await post(one, "admins", {"name": "bob", "role": "viewer", "password": PASSWORD[::-1]})
            assert again.status == 201
        async with gateway(tmp_path / "one", own.url) as one:
            await log_in(one, "bob", PASSWORD[::-1])


async def test_what_was_stored_of_one_store_is_not_given_to_another_that_has_its_own(
    tmp_path: Path, own: RedisServer
) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async with gateway(tmp_path / "one", f"embedded:{tmp_path}/staging.sqlite3") as one:
            staging = await new_key(one, "staging")
        async with gateway(tmp_path / "two", own.url) as two:
            production = await new_key(two, "production")
        async with gateway(tmp_path / "one", own.url) as one:
            assert (await status(one, staging), await status(one, production)) == (401, 200)
            assert one.lines("access_copy_ignored")
            assert names_in(own) == {"key/shop/production"}


async def test_an_embedded_store_whose_file_is_gone_gets_keys_and_admins_back(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite3"
    async with asyncio.timeout(PATIENCE_S):
        async with gateway(tmp_path / "one", f"embedded:{store}") as one:
            key, revoked = await new_key(one, "web"), await new_key(one, "old")
            assert (await post(one, "keys/shop/old/revoke", {})).status == 200
        await asyncio.to_thread(remove_file, store)
        async with gateway(tmp_path / "one", f"embedded:{store}") as one:
            assert (await status(one, key), await status(one, revoked)) == (200, 401)


async def test_a_rotation_at_the_same_moment_does_not_undo_a_revocation(tmp_path: Path, own: RedisServer) -> None:
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as exits:
        one, two = [await exits.enter_async_context(gateway(tmp_path / str(i), own.url)) for i in range(2)]
        key = await new_key(one, "web")
        await until_known(two, key)
        async with two.gateway.control.directory.lock:
            assert (await post(one, "keys/shop/web/revoke", {})).status == 200
            rotation = asyncio.create_task(post(two, "keys/shop/web/rotate", {"overlap_s": 3600}))
            await asyncio.sleep(0.1)
        await rotation
        for _ in range(30):
            assert await status(one, key) == 401
        while await status(two, key) != 401:
            await asyncio.sleep(0.01)


async def test_a_record_that_cannot_be_read_changes_nothing_and_later_revocations_arrive(
    tmp_path: Path, own: RedisServer
) -> None:
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as exits:
        one, two = [await exits.enter_async_context(gateway(tmp_path / str(i), own.url)) for i in range(2)]
        web, old = await new_key(one, "web"), await new_key(one, "old")
        await until_known(two, old)
        store = open_at(own.url)
        for name in ("key/shop/web", "key/shop/alien", "origin"):
            await store.put("access", name, b"\xff{ not a record")
        await store.aclose()
        while not two.lines("access_unreadable"):
            await asyncio.sleep(0.01)
        assert (await post(one, "keys/shop/old/revoke", {})).status == 200
        while await status(two, old) != 401:
            await asyncio.sleep(0.01)
        assert await status(two, web) == 200
        assert (await post(one, "keys/shop/web/revoke", {})).status == 200
        while await status(two, web) != 401:
            await asyncio.sleep(0.01)
