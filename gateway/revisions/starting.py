"""Which policy the gateway is about to serve, for who has to start something for it first."""

from __future__ import annotations

import asyncio
import time
from typing import Final, NamedTuple

from gateway.config import GatewayConfig
from gateway.revisions.history import RevisionHistory
from gateway.revisions.local_copy import COPY_FILE, LocalCopy, is_lost
from gateway.revisions.revision import Revision
from gateway.revisions.seed import Seed
from gateway.store.base import Loss, StoreUnavailable
from gateway.store.opening import open_store
from routing_policies.document import Policy
from routing_policies.loading import load_policy
from routing_policies.problems import PolicyError

_TIMEOUT_S: Final = 2.0


class Starting(NamedTuple):
    """A policy, and why it is not that of the file."""

    policy: Policy
    note: str | None


def starting_policy(config: GatewayConfig, in_file: Policy) -> Starting:
    """The newest revision of the store where the policy is kept there, or the last one that was seen on this machine
    where that is newer; `in_file` where there is neither, or the file is the editor."""
    if not config.keeps_policy_in_store:
        return Starting(in_file, None)
    lost = ""
    kept = LocalCopy(config.runtime_dir / COPY_FILE).read()
    try:
        newest = asyncio.run(_newest(config))
        if is_lost(kept, newest):
            newest, lost = kept, "; the store has lost it and gets it back"
    except StoreUnavailable as error:
        newest, lost = kept, f"; the store cannot be used ({error})"
    seed = Seed(path=config.policy, is_bundled=config.has_bundled_policy)
    if newest is None or seed.replaces(newest) or newest.document == seed.document():
        return Starting(in_file, None)
    name = f"revision {newest.number} ({newest.revision})"
    try:
        policy = load_policy(newest.document, source=name, variables=config.policy_variables)
    except PolicyError as error:
        return Starting(in_file, f"{name} of the store cannot be read, engines are those of {config.policy}: {error}")
    return Starting(policy, f"engines are those of {name} in the store, not of {config.policy}{lost}")


async def _newest(config: GatewayConfig) -> Revision | None:
    store = open_store(
        config.store_address,
        timeout_s=_TIMEOUT_S,
        clock=asyncio.get_running_loop().time,
        wall=time.time,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            history = RevisionHistory(store)
            return await history.get(await history.newest_number())
    except TimeoutError:
        raise StoreUnavailable(Loss.SLOW, f"no answer within {_TIMEOUT_S:g} s") from None
    finally:
        await store.aclose()
