"""A process that uses one tenant's quota as fast as it can: `python -m` this URL TENANT LIMITS COUNT."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from gateway.admission.quotas.quotas import Quotas
from gateway.app.connections.store_opening import open_store
from gateway.errors import QuotaExceeded
from gateway.store.address import parse_store
from gateway.store.base import Store
from gateway.store.guarded import GuardedStore
from routing_policies.loading import load_policy
from tests.gateway.store.test_guarded import Heard


def quotas_over(store: Store, tenant: str, limits: str, holder: str) -> Quotas:
    """What a gateway process named `holder` would make of these limits; any surprise is raised."""

    def surprised(error: BaseException) -> None:
        raise error

    found = Quotas(store, holder=holder, clock=time.monotonic, wall=time.time, report=surprised)
    found.configure(
        load_policy(
            "schema_version: 1\n"
            'deployments: [{id: small, url: "unix:/s.sock", model: m}]\n'
            f"tenants: [{{id: {tenant}, limits: {limits}}}]\n",
            source="policy.yaml",
        )
    )
    return found


async def hammer(quotas: Quotas, tenant: str, count: int) -> int:
    """Requests in a row that were let in, none of which ends."""
    quota, served = quotas.by_tenant.get(tenant), 0
    assert quota is not None
    for _ in range(count):
        now = time.monotonic()
        try:
            quota.try_reserve(10, 0, now) or await quota.reserve(10, 0, now)
        except QuotaExceeded:
            await asyncio.sleep(0.001)
            continue
        served += 1
    return served


async def main(url: str, tenant: str, limits: str, count: str) -> None:
    """Prints how many requests were let in."""
    raw = open_store(parse_store(url), timeout_s=1.0, clock=time.monotonic, wall=time.time)
    store = GuardedStore(raw, timeout_s=1.0, clock=time.monotonic, observer=Heard())
    await store.ping()
    quotas = quotas_over(store, tenant, limits, f"process-{os.getpid()}")
    ticking = asyncio.create_task(quotas.run())
    served = await asyncio.gather(*(hammer(quotas, tenant, int(count)) for _ in range(4)))
    ticking.cancel()
    print(sum(served), flush=True)
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
