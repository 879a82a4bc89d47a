"""How a deployment is reached: address, certificates, and a key that only the environment knows."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from gateway.app.upstream_clients import connector_of
from gateway.routing.snapshot import SnapshotBuilder
from gateway.upstreams.reach import ReachError, authorization_of, reach_of
from routing_policies.loading import load_policy
from routing_policies.policy.document import Deployment, Policy, UpstreamAuth, UpstreamTls

SECRET = "hosted-key-0123456789"
HOSTED = Deployment(id="hosted", url="https://host/v1", model="m", auth=UpstreamAuth(bearer_env="HOSTED_KEY"))


def policy(rest: str, *, model: str = "m") -> Policy:
    text = f"schema_version: 1\ndeployments:\n  - {{id: a, url: 'http://a/v1', model: {model}{rest}}}\n"
    return load_policy(text, source="p")


def test_the_key_comes_from_the_environment_and_is_no_part_of_what_is_shown() -> None:
    reach = reach_of(HOSTED, {"HOSTED_KEY": f"{SECRET}\n"})
    assert reach.authorization == f"Bearer {SECRET}".encode()
    assert SECRET not in repr(reach)
    assert reach.tls is not None


def test_a_deployment_without_a_key_gets_none() -> None:
    plain = Deployment(id="a", url="http://a", model="m")
    reach = reach_of(plain, {"HOSTED_KEY": SECRET})
    assert (reach.authorization, reach.tls) == (None, None)


@pytest.mark.parametrize(
    ("environment", "reported"),
    [
        ({}, "deployments.hosted.auth.bearer_env: the environment variable HOSTED_KEY is not set; set it for"),
        ({"HOSTED_KEY": " \n"}, "the environment variable HOSTED_KEY is not set"),
        ({"HOSTED_KEY": f"Bearer {SECRET}"}, "HOSTED_KEY holds spaces or characters"),
        ({"HOSTED_KEY": f"{SECRET}\nx-evil: 1"}, "HOSTED_KEY holds spaces or characters"),
        ({"HOSTED_KEY": f"{SECRET}é"}, "HOSTED_KEY holds spaces or characters"),
    ],
)
def test_a_key_that_cannot_be_used_names_deployment_and_variable_and_not_itself(
    environment: dict[str, str], reported: str
) -> None:
    with pytest.raises(ReachError) as caught:
        authorization_of(HOSTED, environment)
    assert reported in str(caught.value)
    assert "deployments.hosted.auth.bearer_env" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_ca_file_that_is_none_is_named_with_its_deployment(tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    deployment = Deployment(id="a", url="https://a", model="m", tls=UpstreamTls(ca_file=str(missing)))
    with pytest.raises(ReachError, match=r"deployments\.a\.tls\.ca_file: .*ca\.pem: not a readable PEM file"):
        reach_of(deployment, {})


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://a", b"/v1/chat/completions"),
        ("http://a/", b"/v1/chat/completions"),
        ("unix:/a.sock", b"/v1/chat/completions"),
        ("https://a/v1", b"/chat/completions"),
        ("https://a/openai/v1/", b"/chat/completions"),
    ],
)
def test_a_url_with_a_path_is_the_whole_base_of_the_api(url: str, path: bytes) -> None:
    builder = SnapshotBuilder(
        clock=time.monotonic, connect=connector_of(time.monotonic), rng=random.Random(7), environment={}
    )
    made = Policy(schema_version=1, deployments=(Deployment(id="a", url=url, model="m"),))
    assert builder.build(made, "r").deployments["a"].chat_path == path


def test_a_reload_changes_the_key_and_keeps_the_connections() -> None:
    environment = {"OLD": "old-key", "NEW": "new-key"}
    builder = SnapshotBuilder(
        clock=time.monotonic, connect=connector_of(time.monotonic), rng=random.Random(7), environment=environment
    )
    before = builder.build(policy(", auth: {bearer_env: OLD}"), "r1")
    live = before.deployments["a"]
    after = builder.build(policy(", auth: {bearer_env: NEW}"), "r2", before)
    assert after.deployments["a"] is live
    assert live.authorization == b"Bearer new-key"


def test_a_reload_that_names_an_unknown_variable_leaves_everything_as_it_was() -> None:
    builder = SnapshotBuilder(
        clock=time.monotonic, connect=connector_of(time.monotonic), rng=random.Random(7), environment={"OLD": "old-key"}
    )
    before = builder.build(policy(", auth: {bearer_env: OLD}, limits: {max_in_flight: 5}"), "r1")
    live = before.deployments["a"]
    with pytest.raises(ReachError):
        builder.build(policy(", auth: {bearer_env: NEW}, limits: {max_in_flight: 9}"), "r2", before)
    assert (live.authorization, live.limiter.limit) == (b"Bearer old-key", 5)
