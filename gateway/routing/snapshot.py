"""PolicySnapshot: one policy revision in the form that requests use; a request stays with its first one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Final

from gateway.access.api_keys import KeyRing, StoredKeys
from gateway.deployments.affinity import AffinityIndex
from gateway.deployments.health.ejection import EjectionRules, EjectionTally, FailureKind
from gateway.deployments.health.health import DeploymentHealth
from gateway.deployments.live import LiveDeployment
from gateway.deployments.slow_start import SlowStart
from gateway.discovery.departures import Departures
from gateway.limits.lane import LaneRules, LiveLane, lane_rules
from gateway.limits.limit import Limit, StaticLimit
from gateway.limits.limiter import Limiter
from gateway.routing.deployment_dialects import upstream_dialect_of
from gateway.routing.router import Router
from gateway.routing.trial import Trial
from gateway.timeline import Clock
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.reach import MakeContext, UpstreamReach, headers_of, reach_of
from gateway.upstreams.tls import client_context
from routing_policies.policy.deployment import BUILTIN_ENCODER, Deployment
from routing_policies.policy.document import DEFAULT_LANES, Policy
from routing_policies.policy.members import SEPARATOR, VACANT_URL, MembersBySource, expanded
from routing_policies.quality.predictor import Predictors

_NO_MEMBERS: Final[MembersBySource] = {}

EjectionReport = Callable[[str, FailureKind, float], None]
"""Callback for an ejection: the deployment, the reason, and the seconds."""


def _ignore(deployment: str, kind: FailureKind, backoff_s: float) -> None:
    """Ignore an ejection; the default for owners that do not count them."""


Connect = Callable[[str, UpstreamReach], UpstreamClient]
"""Factory of a deployment's client, by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ejections:
    """Rules by which deployments are ejected, and the callback that reports it."""

    rules: EjectionRules = field(default_factory=EjectionRules)
    report: EjectionReport = _ignore


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySnapshot:
    """Immutable as a whole; the lanes and deployments inside are live and shared with later revisions."""

    revision: str
    policy: Policy
    """Policy with the known members in place of their groups."""
    document: Policy
    """Policy as it was written."""
    keys: KeyRing
    lanes: Mapping[str, LiveLane]
    default_lane: str
    deployments: Mapping[str, LiveDeployment]
    router: Router
    trial: Trial | None = None
    """Canary beside this snapshot; None without one."""

    @property
    def is_servable(self) -> bool:
        """Return whether at least one deployment is ready, the built-in encoder aside."""
        return any(deployment.is_ready for deployment in self.serving)

    @property
    def serving(self) -> tuple[LiveDeployment, ...]:
        """Return the deployments that readiness depends on: all but the built-in encoder, where there are others."""
        everything = tuple(self.deployments.values())
        return tuple(live for live in everything if live.url != BUILTIN_ENCODER) or everything


class PolicyInForce:
    """The snapshot that requests begin with; None before the first policy was loaded."""

    __slots__ = ("snapshot",)

    def __init__(self, snapshot: PolicySnapshot | None = None) -> None:
        self.snapshot = snapshot

    @property
    def current(self) -> PolicySnapshot:
        """Return the snapshot; valid only once there is one."""
        assert self.snapshot is not None, "requests are served only after the first policy was loaded"
        return self.snapshot


class SnapshotBuilder:
    """Builder of a snapshot for each revision; unchanged connections, permits and queues are carried over."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        environment: Mapping[str, str],
        connect: Connect,
        ejections: Ejections | None = None,
        zone: str | None = None,
        stored_keys: StoredKeys | None = None,
        predictors: Predictors | None = None,
    ) -> None:
        """Hold what every snapshot is built from.

        Args:
            clock: Monotonic clock in seconds.
            rng: Random source for routing.
            environment: The keys that the policy only names.
            connect: Makes the client of each deployment.
            ejections: Rules and callback of outlier ejection.
            zone: Zone in which this gateway runs.
            stored_keys: API keys of the shared store.
            predictors: Quality predictors.
        """
        self._clock = clock
        self._rng = rng
        self._environment = environment
        self._ejections = ejections or Ejections()
        self._tally = EjectionTally()
        self._affinity = AffinityIndex()
        self._zone = zone
        self._stored_keys = stored_keys
        self._predictors = predictors
        self._connect = connect
        self.departures = Departures(clock)
        """Members that drain, which may come back."""
        self._slow_starts: dict[str, SlowStart] = {}
        self.make_limiter = _make_limiter
        """Factory of the limiter of a deployment, by its id."""
        self.make_lane = _make_lane
        """Factory of a lane, by its id."""

    def build(
        self,
        document: Policy,
        revision: str,
        previous: PolicySnapshot | None = None,
        members: MembersBySource = _NO_MEMBERS,
    ) -> PolicySnapshot:
        """Build the snapshot of a policy, with the live state of `previous` carried over.

        Args:
            document: The policy as written.
            revision: Name of its revision.
            previous: Snapshot in force so far.
            members: Known members of each source.

        Raises:
            ReachError: A deployment's URL, certificates, key or dialect is invalid; `previous` is then unchanged.
        """
        policy = expanded(document, members)
        headers = {item.id: headers_of(item, self._environment) for item in policy.deployments}
        make_context = cache(client_context)  # a context takes 50 ms; deployments of one build share it
        before = previous.deployments if previous else {}
        deployments = {
            item.id: self._deployment(item, before.get(item.id), make_context) for item in policy.deployments
        }
        rules = policy.lanes or DEFAULT_LANES
        has_targets = any(rule.slo is not None for rule in rules)
        for item in policy.deployments:  # from here on nothing can fail, and what is shared may change
            deployments[item.id].headers = headers[item.id]
            deployments[item.id].describe(item)
            deployments[item.id].limiter.set_limit(StaticLimit(item.limits.max_in_flight), is_adaptive=has_targets)
        self.departures.note_back(deployments.values())
        self._warm_up(document, deployments)
        if previous is not None:
            _presume_ready(deployments.values(), previous.deployments.values())
        longer = {rule.longer for rule in rules}
        lanes = {
            rule.id: self._lane(
                rule.id,
                lane_rules(rule, is_longer=rule.id in longer),
                previous.lanes.get(rule.id) if previous else None,
            )
            for rule in rules
        }
        return PolicySnapshot(
            revision=revision,
            policy=policy,
            document=document,
            keys=KeyRing(policy, self._stored_keys),
            lanes=lanes,
            default_lane=rules[0].id,
            deployments=deployments,
            router=self._router(policy, deployments),
        )

    def _warm_up(self, document: Policy, deployments: Mapping[str, LiveDeployment]) -> None:
        """Give each group's members their common warm-up; it outlives revisions."""
        for item in document.deployments:
            if item.discover is None:
                self._slow_starts.pop(item.id, None)
                continue
            group = self._slow_starts.setdefault(item.id, SlowStart(item.discover.slow_start_s))
            group.duration_s = item.discover.slow_start_s
            members = tuple(live for live in deployments.values() if live.group == item.id)
            group.members = members
            for live in members:
                live.slow_start = group

    def _router(self, policy: Policy, deployments: Mapping[str, LiveDeployment]) -> Router:
        return Router(
            policy,
            deployments,
            self._rng,
            self._clock,
            affinity=self._affinity,
            zone=self._zone,
            predictors=self._predictors,
        )

    def build_trial(
        self,
        document: Policy,
        revision: str,
        base: PolicySnapshot,
        *,
        salt: str,
        percent: int,
        tenants: Iterable[str] | None,
        members: MembersBySource = _NO_MEMBERS,
        previous: Trial | None = None,
    ) -> Trial:
        """Build a snapshot beside `base` for some of the traffic; both share lanes, permits and connections.

        `previous` is the trial so far, whose deployments continue.

        Raises:
            ReachError: A deployment that `base` does not have is invalid; `base` is unchanged in any case.
        """
        policy = expanded(document, members)
        own = {} if previous is None else previous.snapshot.deployments
        make_context = cache(client_context)
        deployments = {
            item.id: self._deployment(item, base.deployments.get(item.id) or own.get(item.id), make_context)
            for item in policy.deployments
        }
        for item in policy.deployments:
            live = deployments[item.id]
            if base.deployments.get(item.id) is not live:
                live.headers = headers_of(item, self._environment)
                live.describe(item)
        self.departures.note_back(deployments.values())
        _presume_ready(deployments.values(), (*base.deployments.values(), *own.values()))
        snapshot = PolicySnapshot(
            revision=revision,
            policy=policy,
            document=document,
            keys=KeyRing(policy, self._stored_keys),
            lanes=base.lanes,
            default_lane=base.default_lane,
            deployments=deployments,
            router=self._router(policy, deployments),
        )
        return Trial(
            snapshot,
            salt=salt,
            percent=percent,
            tenants=None if tenants is None else frozenset(tenants),
            limits={tenant.id: tenant.flags["canary"] for tenant in base.policy.tenants if tenant.flags},
        )

    def _lane(self, lane_id: str, rules: LaneRules, retained: LiveLane | None) -> LiveLane:
        if retained is None:
            return self.make_lane(lane_id, rules)
        retained.configure(rules)
        return retained

    def _deployment(self, item: Deployment, retained: LiveDeployment | None, context: MakeContext) -> LiveDeployment:
        if retained is not None and retained.serves(item):
            return retained
        if (recalled := self.departures.recalled(item)) is not None:
            return recalled
        reach, dialect = reach_of(item, self._environment, context), upstream_dialect_of(item)
        client = self._connect(item.id, reach)
        limiter = self.make_limiter(item.id, StaticLimit(item.limits.max_in_flight), self._clock)
        health = DeploymentHealth(
            rules=self._ejections.rules, tally=self._tally, on_ejected=partial(self._ejections.report, item.id)
        )
        return LiveDeployment(item, reach, client, limiter, health, dialect)


def _make_limiter(deployment: str, limit: Limit, clock: Clock) -> Limiter:
    return Limiter(limit, clock=clock)


def _make_lane(lane: str, rules: LaneRules) -> LiveLane:
    return LiveLane(lane, rules=rules)


def _presume_ready(now: Iterable[LiveDeployment], before: Iterable[LiveDeployment]) -> None:
    """Mark the deployments that a reload adds as ready until a probe or a failed connect shows otherwise.

    That is better than a gap. Members of groups come while others serve, so they are probed first.
    """
    known = set(before)
    for live in now:
        is_presumed = live not in known and SEPARATOR not in live.id and live.url != VACANT_URL
        live.is_ready = (live.is_ready or is_presumed) and live.may_be_ready
