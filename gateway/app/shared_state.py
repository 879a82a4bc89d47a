"""SharedState: what one gateway process shares with others of its kind, from opening it to the last word."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from typing import Final

from gateway.admission.quotas.quotas import Quotas
from gateway.app.connections.store_opening import open_store
from gateway.app.runtime import Runtime
from gateway.cache.exact.exact_cache import ExactCache
from gateway.cache.sharing.sharing import CacheSharing
from gateway.config.checks import ConfigError
from gateway.config.settings import GatewayConfig
from gateway.dialects.responses.response_store import ResponseStore
from gateway.machine.process import MachineProcess
from gateway.store.address import StoreAddress
from gateway.store.base import StoreUnavailable
from gateway.store.guarded import GuardedStore
from gateway.store.schema import SchemaMismatch, StampedStore
from gateway.telemetry.store_watch import StoreWatch
from gateway.util.doubling_pauses import Keep

_SHARING_TIMEOUT_S: Final = 0.5
_CONTROL_TIMEOUT_S: Final = 2.0
"""Timeout of operations that no request waits for."""


class SharedState:
    """The store for tenants' limits and, where settings share the cache, the one for its entries."""

    def __init__(
        self, config: GatewayConfig, runtime: Runtime, cache: ExactCache, member: MachineProcess | None = None
    ) -> None:
        """Open the stores; `member` is this process among those of one gateway, None where it is the only one."""
        metrics, log = runtime.metrics, runtime.log
        self._config = config
        self._metrics = metrics
        self._log = log
        self._runtime = runtime
        self._wall = runtime.wall
        self.member = member
        """This process among those of one gateway; None where it is the only one."""
        self.num_processes = 1 if member is None else member.spec.num_workers
        """Processes of this gateway that serve requests, and share the deployments' permits."""
        self.limits = self._open(config.store.timeout_s, is_side=False)
        self.control = self._open(_CONTROL_TIMEOUT_S, is_side=True)
        """The store for revisions, keys and whatever else admins change."""
        self.quotas = Quotas(
            self.limits,
            holder=runtime.holder,
            clock=runtime.clock,
            wall=runtime.wall,
            report=lambda error: log.failure("quota_failed", error),
            count_refusal=lambda tenant, limit: metrics.quota_refused.labels(tenant, limit).inc(),
        )
        # On connections and with a breaker of its own: however much of the answers travels, limits do not wait.
        self._entries = self._open(_SHARING_TIMEOUT_S, is_side=True, address=config.answers_address)
        self.responses = ResponseStore(self._entries)
        """Responses that clients refer to; without `responses.store` in the policy it is not used."""
        self.sharing: CacheSharing | None = None
        """The shared cache; None where the cache stays in memory."""
        is_embedded = config.store_address.kind == "embedded"
        if config.cache.shared is not False:
            self.sharing = CacheSharing(
                cache,
                self._entries,
                wall=runtime.wall,
                new_name=lambda: secrets.token_hex(8),
                count=lambda event: metrics.cache_sharing.labels(event).inc(),
                is_mirror=is_embedded and (member is None or member.is_control),
                is_alone=not config.shares_cache and member is None,
                # The embedded store follows what fits into memory; a Redis is bounded for all that write to it.
                max_bytes=None if is_embedded else config.cache.max_mb * 1024 * 1024,
            )
            self.sharing.keeps_stale = is_embedded and member is not None
            cache.share_with(self.sharing)

    async def try_reach(self) -> None:
        """Try to reach the store on every connection; without one the gateway serves all the same.

        The first operation on a connection takes longer than the operation timeout allows.

        Raises:
            ConfigError: The store is there, and this version may not share it.
        """
        results = await asyncio.gather(*(store.reach() for store in self._connected()), return_exceptions=True)
        for error in results:
            if isinstance(error, SchemaMismatch):
                raise ConfigError(f"store.address: {error}; upgrade by one minor version at a time") from error
            if error is not None and not isinstance(error, StoreUnavailable):  # of those the log has it
                raise error

    def start(self, keep: Keep) -> None:
        """Start the tasks that refresh the shared state until they are cancelled."""
        keep(self.limits.watch, "store")
        keep(self.control.watch, "control_store")
        keep(self.quotas.run, "quotas")
        keep(self._entries.watch, "answer_store")
        if self.sharing is not None:
            keep(self.sharing.write, "cache_writes")
            keep(self.sharing.follow, "cache_feed")
            keep(self.sharing.sweep_all, "cache_sweeps")

    async def aclose(self) -> None:
        """Give back what is held, publish what waits, close; nothing that `start` began runs any more."""
        await self.quotas.give_all_back()
        if self.sharing is not None:
            await self.sharing.flush()
        for store in self._connected():
            await store.aclose()

    def _connected(self) -> Iterator[GuardedStore]:
        yield self._entries
        yield self.control
        yield self.limits

    def _open(self, timeout_s: float, *, is_side: bool, address: StoreAddress | None = None) -> GuardedStore:
        address = address or self._config.store_address
        watch = StoreWatch(self._metrics, self._log, address.shown, is_side=is_side)
        clock = self._runtime.clock
        if self._runtime.open_store is not None:
            raw = self._runtime.open_store()
        else:
            raw = open_store(
                address, timeout_s=timeout_s, wall=self._wall, on_damage=watch.damaged, on_time=self._wall.note
            )
        stamped = StampedStore(raw)
        return GuardedStore(stamped, timeout_s=timeout_s, clock=clock, observer=watch, on_back=self._note_back)

    def _note_back(self) -> None:
        """Have the other connections tried once one of them has found the store again, as after a fail-over."""
        for store in self._connected():
            store.expect_back()
