"""Snapshots of policy revisions: what a reload carries over, and what a bad one leaves alone."""

from __future__ import annotations

import random
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.routing.snapshot import PolicyInForce, PolicySnapshot, SnapshotBuilder
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.pulse import Pulse
from gateway.upstreams.reach import ReachError, UpstreamReach
from routing_policies.loading import load_policy
from routing_policies.policy.document import Policy
from tests.gateway.authority import make_authority

TEXT = """schema_version: 1
deployments:
  - {{id: a, url: 'http://{host}', model: m, limits: {{max_in_flight: {permits}}}{auth}}}
  - {{id: b, url: 'http://b', model: n}}
lanes: [{{id: chat, weight: {weight}}}]
tenants: [{{id: shop, flags: {{canary: 0}}}}, {{id: lab}}]
"""


class Builds:
    """A builder, and whom it connected to."""

    def __init__(self) -> None:
        self.connected: list[str] = []
        self.builder = SnapshotBuilder(
            clock=lambda: 0.0, rng=random.Random(1), environment={"KEY": "k" * 20}, connect=self._connect
        )

    def _connect(self, name: str, reach: UpstreamReach) -> UpstreamClient:
        self.connected.append(name)
        return cast(UpstreamClient, SimpleNamespace(pulse=Pulse()))

    def build(
        self,
        previous: PolicySnapshot | None = None,
        *,
        host: str = "a",
        permits: int = 4,
        weight: int = 1,
        auth: str = "",
    ) -> PolicySnapshot:
        text = TEXT.format(host=host, permits=permits, weight=weight, auth=auth)
        return self.builder.build(load_policy(text, source="test"), "r", previous)


def test_what_did_not_change_is_carried_over_with_its_new_numbers() -> None:
    builds = Builds()
    first = builds.build()
    second = builds.build(first, permits=9, weight=5)
    assert second.deployments["a"] is first.deployments["a"]
    assert second.deployments["a"].limiter.limit == 9
    assert second.lanes["chat"] is first.lanes["chat"]
    assert second.lanes["chat"].rules.weight == 5
    assert builds.connected == ["a", "b"]


def test_a_deployment_that_moved_is_a_new_one_and_taken_for_ready() -> None:
    builds = Builds()
    first = builds.build()
    assert not first.is_servable, "nobody was probed yet"
    first.deployments["b"].is_ready = True
    second = builds.build(first, host="elsewhere")
    assert second.deployments["a"] is not first.deployments["a"]
    assert second.deployments["a"].is_ready
    assert builds.connected == ["a", "b", "a"]


def test_the_built_in_encoder_alone_serves_no_chat_but_alone_in_a_policy_it_serves() -> None:
    encoder = "  - {id: encoder, url: 'builtin:encoder', model: e}\n"
    text = TEXT.format(host="a", permits=4, weight=1, auth="").replace("lanes:", f"{encoder}lanes:")
    beside = Builds().builder.build(load_policy(text, source="test"), "r1")
    beside.deployments["encoder"].is_ready = True
    assert (beside.is_servable, len(beside.serving)) == (False, 2)
    beside.deployments["b"].is_ready = True
    assert beside.is_servable

    alone = Builds().builder.build(load_policy(f"schema_version: 1\ndeployments:\n{encoder}", source="test"), "r1")
    alone.deployments["encoder"].is_ready = True
    assert alone.is_servable


def test_a_revision_whose_key_is_missing_changes_nothing() -> None:
    builds = Builds()
    first = builds.build(auth=", auth: {bearer_env: KEY}")
    with pytest.raises(ReachError):
        builds.build(first, permits=9, auth=", auth: {bearer_env: OTHER}")
    live = first.deployments["a"]
    assert (live.limiter.limit, live.headers.sent) == (4, ((b"authorization", b"Bearer " + b"k" * 20),))


def test_a_trial_shares_lanes_permits_and_connections_with_what_is_in_force() -> None:
    builds = Builds()
    base = builds.build()
    policy = load_policy(TEXT.format(host="a", permits=9, weight=7, auth=""), source="test")
    trial = builds.builder.build_trial(policy, "r2", base, salt="s", percent=10, tenants=None)
    assert trial.snapshot.lanes is base.lanes
    assert trial.snapshot.deployments["a"] is base.deployments["a"]
    assert base.deployments["a"].limiter.limit == 4, "a trial changes no limit"
    assert base.lanes["chat"].rules.weight == 1


def test_a_trial_that_goes_on_follows_its_new_revision_in_what_its_own_deployments_can_do() -> None:
    builds = Builds()
    base = builds.build()

    def policy(members: str) -> Policy:
        own = f"  - {{id: c, url: 'http://c', model: m{members}}}\nlanes:"
        text = TEXT.format(host="a", permits=4, weight=1, auth="").replace("lanes:", own)
        return load_policy(text, source="test")

    first = builds.builder.build_trial(policy(""), "r2", base, salt="s", percent=10, tenants=None)
    live = first.snapshot.deployments["c"]
    assert (live.plain_as_stream, live.prediction, live.reads_cache_salt) == ("suspected", "auto", False)
    members = ", plain_as_stream: never, prediction: 'off', prefix_salt: body"
    builds.builder.build_trial(policy(members), "r3", base, salt="s", percent=10, tenants=None, previous=first)
    assert (live.plain_as_stream, live.prediction, live.reads_cache_salt) == ("never", "off", True)


def test_requests_begin_with_the_snapshot_in_force() -> None:
    holder = PolicyInForce()
    with pytest.raises(AssertionError):
        _ = holder.current
    holder.snapshot = Builds().build()
    assert holder.current is holder.snapshot


def test_deployments_with_the_same_authorities_share_one_tls_context(tmp_path: Path) -> None:
    contexts: dict[str, ssl.SSLContext | None] = {}

    def connect(name: str, reach: UpstreamReach) -> UpstreamClient:
        contexts[name] = reach.tls
        return cast(UpstreamClient, SimpleNamespace(pulse=Pulse()))

    own = f"tls: {{ca_file: '{make_authority(tmp_path).ca_file}'}}"
    lines = [f"  - {{id: {name}, url: 'https://{name}', model: m}}" for name in "ab"]
    lines += [f"  - {{id: {name}, url: 'https://{name}', model: m, {own}}}" for name in "cd"]
    document = load_policy("\n".join(["schema_version: 1", "deployments:", *lines, ""]), source="test")
    builder = SnapshotBuilder(clock=lambda: 0.0, rng=random.Random(1), environment={}, connect=connect)
    builder.build(document, "r")
    assert contexts["a"] is contexts["b"] is not None
    assert contexts["c"] is contexts["d"] is not contexts["a"]
