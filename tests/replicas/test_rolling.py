"""Three gateways that are replaced one by one under load, with their like or with the next version (rows 39, 50)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.store.redis_server import RedisServer
from tests.replicas.fleet import ORDINARY, fleet_over
from tests.replicas.next_version import MEMBER

NEXT = ("tests.replicas.next_version", "1", "gateway")
AFTER_NEXT = ("tests.replicas.next_version", "2", "gateway")


@pytest.mark.parametrize("program", [ORDINARY, NEXT], ids=["row_39_restart", "row_50_upgrade"])
async def test_replicas_are_replaced_one_by_one_under_load(
    tmp_path: Path, redis: RedisServer, program: tuple[str, ...]
) -> None:
    async with (
        fleet_over(redis.url, tmp_path, process__drain_notice_s=1.0) as fleet,
        fleet.load("metered0", pause_s=0.06) as load,
    ):
        for old in list(fleet.replicas):
            await fleet.replace(old, program=program)
            await fleet.check_keys()
            await fleet.check_policy()
            await load.until_more()
        load.stop()
        await fleet.check(load)
        stored = redis.admin.hget("penstock:{access}:e:key/free/dead", "v")
        assert (MEMBER.encode() in stored) is False, "no upgrade rewrites what it reads"


async def test_row_50_two_versions_side_by_side_and_back_again(tmp_path: Path, redis: RedisServer) -> None:
    """Either reads what the other writes, and what the older one changes keeps the members of the newer one."""
    async with fleet_over(redis.url, tmp_path, num=2, programs=(NEXT,), process__drain_notice_s=1.0) as fleet:
        newer, older = fleet.replicas
        made = await newer.admin("POST", "keys", {"tenant": "free", "id": "of-newer"})
        assert made.status == 201
        fleet.num_changes += 1

        async def is_good() -> bool:
            return (await older.chat("plain", "hi", key=made.json["key"])).status == 200

        await fleet.until_async(is_good, "the key at the older version")
        assert (await older.admin("POST", "keys/free/of-newer/revoke", {"reason": "a test"})).status == 200
        fleet.num_changes += 1
        assert MEMBER.encode() in redis.admin.hget("penstock:{access}:e:key/free/of-newer", "v")
        await fleet.check_policy()
        await fleet.check_cache()
        await fleet.check_audit_log()
        await fleet.replace(newer)  # the upgrade is taken back
        await fleet.check_policy()
        await fleet.check_keys()
        await fleet.check_cache()
        await fleet.check_audit_log()


async def test_row_50_a_version_that_is_too_new_does_not_start(tmp_path: Path, redis: RedisServer) -> None:
    async with fleet_over(redis.url, tmp_path, num=1) as fleet:
        with pytest.raises(AssertionError, match=r"the store is of schema 1\.0, and this version shares 1\.2"):
            await fleet.start_one(program=AFTER_NEXT)
        await fleet.check_keys()
