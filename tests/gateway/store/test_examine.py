"""What `penstock doctor` finds out about a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.app.connections.store_opening import open_examined
from gateway.store.address import parse_store
from gateway.store.examine import StoreFinding, examine_store
from tests.gateway.store.redis_server import ClusterSet, RedisServer, SentinelSet


async def found_at(url: str, timeout_s: float = 0.5) -> list[StoreFinding]:
    return await examine_store(parse_store(url), open_examined, timeout_s=timeout_s)


async def test_an_embedded_store_that_works_is_good(tmp_path: Path) -> None:
    (finding,) = await found_at(f"embedded:{tmp_path / 'store.sqlite3'}")
    assert finding.level == "ok"
    assert "store.sqlite3, answers in" in finding.message


async def test_an_embedded_store_out_of_reach_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (finding,) = await found_at(f"embedded:{tmp_path / 'file' / 'store'}")
    assert finding.level == "fail"
    assert finding.remedy is not None


async def test_a_redis_that_is_not_there_is_a_failure_that_shows_no_password() -> None:
    (finding,) = await found_at("redis://user:hunter2@127.0.0.1:1")
    assert (finding.level, "hunter2" in finding.message) == ("fail", False)


async def test_a_redis_made_to_forget_is_warned_about(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, "maxmemory 100mb", "maxmemory-policy allkeys-lru").start()
    findings = await found_at(server.url)
    server.kill()
    assert [finding.level for finding in findings] == ["ok", "warn", "warn"]
    assert "evicts keys" in findings[1].message
    assert findings[1].remedy == "set maxmemory-policy noeviction"
    assert findings[2].remedy == "set appendonly yes"


async def test_a_redis_made_to_remember_is_good(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, "maxmemory 100mb", "appendonly yes").start()
    findings = await found_at(server.url)
    server.kill()
    assert [finding.level for finding in findings] == ["ok"]
    assert "(Redis " in findings[0].message


async def test_a_user_who_may_not_read_settings_is_no_failure(tmp_path: Path) -> None:
    server = RedisServer(tmp_path).start()
    server.admin.acl_setuser("app", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all", "-config", "-info"])
    findings = await found_at(server.url.replace("//", "//app:pw@"))
    server.kill()
    assert [finding.level for finding in findings] == ["ok"]


async def test_a_store_that_is_too_slow_for_its_timeout_is_warned_about(redis_server: RedisServer) -> None:
    (finding,) = await found_at(redis_server.url, timeout_s=0.000001)
    assert finding.level == "warn"
    assert "store.timeout_s" in (finding.remedy or "")


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
async def test_many_servers_are_one_store(kind: str, sentinel_set: SentinelSet, cluster_set: ClusterSet) -> None:
    findings = await found_at(sentinel_set.url if kind == "sentinel" else cluster_set.url)
    assert findings[0].level == "ok"
    assert len(findings) == 2  # they keep nothing on disk here
