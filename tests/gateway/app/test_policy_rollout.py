"""Revisions, canaries and members that come into force, and the deployments that they leave behind."""

from __future__ import annotations

import io
import random
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.app.discovery.membership import Membership
from gateway.app.policy_rollout import PolicyRollout
from gateway.policies.canary import CanaryTrial
from gateway.policies.policy_file import PolicyRevision
from gateway.policies.revision import Revision
from gateway.routing.snapshot import PolicyInForce, SnapshotBuilder
from gateway.telemetry.logs.log import LogWriter
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.pulse import Pulse
from gateway.upstreams.reach import ReachError
from routing_policies.loading import load_policy
from routing_policies.policy.document import Policy

CANARY = CanaryTrial(
    id="c1",
    state="running",
    base={},
    revision="r9",
    document="",
    percent=10,
    tenants=None,
    author="ann",
    reason="a canary",
    at=0.0,
)


def policy(*hosts: str, auth: str = "") -> Policy:
    items = "".join(f"  - {{id: {host}, url: 'http://{host}', model: m{auth}}}\n" for host in hosts)
    return load_policy(f"schema_version: 1\ndeployments:\n{items}", source="test")


class World:
    """A rollout whose tasks are noted instead of run."""

    def __init__(self) -> None:
        self.policy = PolicyInForce()
        self.followed: list[list[Policy]] = []
        self.spawned: list[str] = []
        self.num_drains = 0
        membership = SimpleNamespace(known=lambda *policies: {}, follow=self.followed.append)
        self.rollout = PolicyRollout(
            self.policy,
            SnapshotBuilder(
                clock=lambda: 0.0,
                rng=random.Random(1),
                environment={},
                connect=lambda name, reach: cast(UpstreamClient, SimpleNamespace(pulse=Pulse())),
            ),
            cast(Membership, membership),
            spawn=self._spawn,
            probe_all=self._probe,
            apply_drains=self._drain,
            log=LogWriter(io.BytesIO()),
        )

    def take(self, document: Policy, revision: str = "r1") -> None:
        before = self.rollout.in_force
        origin = Revision(
            number=0, revision=revision, parent=None, author="file", reason="", at=0.0, kind="seed", document=""
        )
        made = self.rollout.build(PolicyRevision(policy=document, revision=revision, origin=origin))
        self.rollout.put_in_force(made)
        self.rollout.let_go(before)

    @property
    def names(self) -> list[str]:
        return [live.id for live in self.rollout.in_force]

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        work.close()
        self.spawned.append(name)

    async def _probe(self) -> None:
        """Probe nothing."""

    def _drain(self) -> None:
        self.num_drains += 1


def test_the_first_revision_leaves_nothing_behind() -> None:
    world = World()
    assert world.rollout.deployments == ()
    world.rollout.take_members()
    assert world.num_drains == 0, "there is no policy whose members could change"
    world.take(policy("a", "b"))
    assert (world.names, world.spawned) == (["a", "b"], [])


def test_a_deployment_that_left_is_retired_and_the_others_are_probed() -> None:
    world = World()
    world.take(policy("a", "b"))
    first, second = world.rollout.in_force
    world.take(policy("b"), "r2")
    assert (first.has_left, second.has_left) == (True, False)
    assert world.spawned == ["retire", "probe"]
    assert world.policy.current.revision == "r2"


def test_a_revision_that_cannot_be_reached_changes_nothing() -> None:
    world = World()
    world.take(policy("a"))
    before = world.policy.current
    with pytest.raises(ReachError):
        world.take(policy("b", auth=", auth: {bearer_env: ABSENT}"))
    assert world.policy.current is before
    assert world.spawned == []


def test_a_canary_stands_beside_what_is_in_force_until_it_is_taken_away() -> None:
    world = World()
    written, tried = policy("a"), policy("a", "b")
    world.take(written)
    world.rollout.take_trial(tried, CANARY)
    (_, only_tried) = world.rollout.in_force
    assert (world.names, world.followed[-1]) == (["a", "b"], [written, tried])
    world.rollout.take_trial(None, None)
    assert (world.names, world.followed[-1], only_tried.has_left) == (["a"], [written], True)


def test_new_members_keep_the_canary_and_the_drains() -> None:
    world = World()
    world.take(policy("a"))
    world.rollout.take_trial(policy("a", "b"), CANARY)
    before = world.policy.current
    world.rollout.take_members()
    after = world.policy.current
    assert after is not before
    assert after.trial is not None
    assert (world.names, world.num_drains) == (["a", "b"], 1)
