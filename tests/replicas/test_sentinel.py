"""A primary behind Sentinels that is killed, frozen or cut off under the load of three gateways (row 47)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.gateway.store.redis_server import SentinelSet
from tests.replicas.fleet import Fleet, fleet_over, has_store, started


@asynccontextmanager
async def behind_sentinels(folder: Path) -> AsyncIterator[tuple[SentinelSet, Fleet]]:
    async with started(SentinelSet(folder / "sentinels")) as servers, fleet_over(servers.url, folder) as fleet:
        yield servers, fleet


def is_promoted(servers: SentinelSet) -> bool:
    """Whether a Sentinel names the replica as the primary."""
    named = [each.admin.sentinel_get_master_addr_by_name(servers.SERVICE) for each in servers.sentinels[1:]]
    return any(port == servers.replica.port for _, port in named)


def kill_the_primary(servers: SentinelSet) -> None:
    servers.primary.kill()


def freeze_a_machine(servers: SentinelSet) -> None:
    """The primary and the Sentinel beside it, as when their machine is cut off."""
    servers.sentinels[0].freeze()
    servers.primary.freeze()


@pytest.mark.parametrize("fault", [kill_the_primary, freeze_a_machine])
async def test_row_47_a_sentinel_failover(tmp_path: Path, fault: Callable[[SentinelSet], None]) -> None:
    async with behind_sentinels(tmp_path) as (servers, fleet):
        async with fleet.load("metered0") as load:
            fault(servers)
            await fleet.until(lambda: is_promoted(servers), "a promotion")
            took_s = await fleet.until_each(has_store, "the new primary is in use")
            assert took_s <= 1.5
            await load.until_more()
        await fleet.check(load)
