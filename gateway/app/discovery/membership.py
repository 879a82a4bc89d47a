"""Membership: the members of the policy's groups, constructed for the app, and what operators see of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gateway.admin.views.group_state import GroupState
from gateway.app.discovery.source_opening import SourceOpener
from gateway.config.discovery import DiscoverySettings
from gateway.deployments.live import LiveDeployment
from gateway.discovery.discovery import Discovery
from gateway.discovery.followed_source import FollowedSource
from gateway.routing.snapshot import PolicySnapshot
from gateway.store.base import Store
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.timeline import Clock
from routing_policies.policy.deployment import MemberSourceKey
from routing_policies.policy.document import Policy
from routing_policies.policy.members import MembersBySource

SETTLE_S: Final = 2.0
"""Longest time that a start waits for the first listings."""


class Membership:
    """Discovery of one process."""

    def __init__(
        self,
        settings: DiscoverySettings,
        store: Store,
        *,
        log: LogWriter,
        metrics: GatewayMetrics,
        clock: Clock,
        environment: Mapping[str, str],
        on_change: Callable[[], None],
    ) -> None:
        """Follow nothing yet; `on_change` is called when members of the policies in force have changed."""
        self._log = log
        self._metrics = metrics
        self._clock = clock
        self._opener = SourceOpener(settings, environment, store)
        self._failing: set[MemberSourceKey] = set()
        self._discovery = Discovery(
            self._opener,
            clock,
            on_change=on_change,
            watcher=self._note_look,
            on_crash=self._note_crash,
        )

    def known(self, *policies: Policy) -> MembersBySource:
        """Return the members with which these policies come into force, or are in force."""
        return self._discovery.members_for(policies)

    def follow(self, policies: Iterable[Policy]) -> None:
        """Follow the sources of these policies, and no others."""
        self._discovery.follow(policies)
        self._failing.intersection_update(self._discovery.sources)

    async def settle(self) -> None:
        """Wait a moment for the first listings, so that a start does not refuse requests for want of them."""
        await self._discovery.settle(SETTLE_S)

    async def aclose(self) -> None:
        """Stop following."""
        await self._discovery.aclose()
        await self._opener.aclose()

    def groups(self, snapshot: PolicySnapshot | None) -> tuple[GroupState, ...]:
        """Return each group of the policy in force with the state of its source."""
        found: list[GroupState] = []
        for item in () if snapshot is None else snapshot.document.deployments:
            if item.discover is None or (source := self._discovery.sources.get(item.discover.source)) is None:
                continue
            kind, name, _ = item.discover.source
            found.append(
                GroupState(
                    id=item.id,
                    source=f"{kind} {name}",
                    num_members=min(len(source.members), item.discover.max_members),
                    num_left_out=max(len(source.members) - item.discover.max_members, 0),
                    age_s=source.age_s(),
                    error=source.error,
                )
            )
        return tuple(found)

    def read_state(self, snapshot: PolicySnapshot | None, departing: Iterable[LiveDeployment]) -> None:
        """Set the gauges of members and sources anew."""
        metrics, now = self._metrics, self._clock()
        metrics.members.clear()
        metrics.discovery_up.clear()
        counts: dict[tuple[str, str], int] = {}
        lives = () if snapshot is None else snapshot.deployments.values()
        for live in (*lives, *departing):
            if live.slow_start is not None and live.id != live.group:
                key = live.group, member_state(live, now)
                counts[key] = counts.get(key, 0) + 1
        for group in self.groups(snapshot):
            metrics.discovery_up.labels(group.id).set(group.error is None)
            for state in MEMBER_STATES:
                metrics.members.labels(group.id, state).set(counts.get((group.id, state), 0))

    def _note_crash(self, error: BaseException) -> None:
        self._metrics.background_failures.labels("discovery").inc()
        self._log.failure("discovery_failed", error)

    def _note_look(self, key: MemberSourceKey, source: FollowedSource, *, is_listed: bool) -> None:
        """Count a look, and log a source that fails or can be read again; each once."""
        kind, name, _ = key
        self._metrics.discovery_reads.labels(kind, "listed" if is_listed else "failed").inc()
        if not is_listed and key not in self._failing:
            self._failing.add(key)
            self._log.event("members_unreadable", level="warning", source=kind, name=name, error=source.error)
        elif is_listed and key in self._failing:
            self._failing.discard(key)
            self._log.event("members_readable", source=kind, name=name)


MEMBER_STATES: Final = ("ready", "warming", "draining", "down")


def member_state(live: LiveDeployment, now: float) -> str:
    """Return the state of a member in one word."""
    if not live.may_be_ready:
        return "draining"
    if not live.is_ready or live.health.is_ejected(now):
        return "down"
    return "ready" if live.warm_up_share(now) >= 1.0 else "warming"
