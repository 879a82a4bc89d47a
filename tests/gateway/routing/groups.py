"""Snapshots of a policy with one group, whose members a test gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Final, cast

from gateway.routing.snapshot import PolicySnapshot, SnapshotBuilder
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.pulse import Pulse
from gateway.upstreams.reach import UpstreamReach
from routing_policies.loading import load_policy
from routing_policies.policy.deployment import MemberSourceKey
from routing_policies.policy.members import Address, MembersBySource

GROUP: Final = "engine"
SOURCE: Final[MemberSourceKey] = ("list", "engines", None)


class Groups:
    """A builder whose snapshots follow each other."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = lambda: 0.0,
        model: str = "m",
        policy: str = "first_available",
        candidates: str = GROUP,
        slow_start_s: int = 30,
    ) -> None:
        def connect(name: str, reach: UpstreamReach) -> UpstreamClient:
            return cast(UpstreamClient, SimpleNamespace(pulse=Pulse()))

        text = f"""
schema_version: 1
deployments:
  - id: {GROUP}
    model: {model}
    limits: {{max_in_flight: 4}}
    discover: {{list: engines, slow_start_s: {slow_start_s}}}
  - {{id: cloud, url: "http://cloud", model: {model}}}
routes:
  - {{id: main, select: {{policy: {policy}, candidates: [{candidates}]}}}}
"""
        if candidates == GROUP:
            text = text.replace(f'  - {{id: cloud, url: "http://cloud", model: {model}}}\n', "")
        self.document = load_policy(text, source="test")
        self.builder = SnapshotBuilder(clock=clock, rng=random.Random(1), environment={}, connect=connect)
        self.snapshot: PolicySnapshot | None = None

    def build(self, members: MembersBySource) -> PolicySnapshot:
        """The next snapshot."""
        self.snapshot = self.builder.build(self.document, "r1", self.snapshot, members)
        return self.snapshot

    def of(self, *hosts: str) -> PolicySnapshot:
        """The next snapshot, with members at these hosts."""
        return self.build({SOURCE: [Address(host, 8000) for host in hosts]})
