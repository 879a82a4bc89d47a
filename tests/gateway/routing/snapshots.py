"""Snapshots for tests: every deployment ready, time by hand."""

from __future__ import annotations

import random

from gateway.app.connections.upstream_clients import connector_of
from gateway.deployments.health.ejection import EjectionRules
from gateway.routing.snapshot import Ejections, PolicySnapshot, SnapshotBuilder
from routing_policies.loading import load_policy


class ManualClock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def snapshot_of(text: str, ejection: EjectionRules, clock: ManualClock | None = None) -> PolicySnapshot:
    """A snapshot of the policy with every deployment ready."""
    builder = SnapshotBuilder(
        clock=clock or ManualClock(),
        connect=connector_of(clock or ManualClock()),
        rng=random.Random(7),
        environment={},
        ejections=Ejections(rules=ejection),
    )
    made = builder.build(load_policy(text, source="test"), "r1")
    for live in made.deployments.values():
        live.is_ready = True
    return made
