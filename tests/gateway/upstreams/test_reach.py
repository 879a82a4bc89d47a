"""How a deployment is reached: address, certificates, and a key that only the environment knows."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from gateway.app.connections.upstream_clients import connector_of
from gateway.routing.snapshot import SnapshotBuilder
from gateway.upstreams.reach import ReachError, headers_of, reach_of
from routing_policies.loading import load_policy
from routing_policies.policy.deployment import Deployment, UpstreamAuth, UpstreamTls
from routing_policies.policy.document import Policy
from routing_policies.policy.members import sample_member
from routing_policies.policy.problems import PolicyError

SECRET = "hosted-key-0123456789"
HOSTED = Deployment(id="hosted", url="https://host/v1", model="m", auth=UpstreamAuth(bearer_env="HOSTED_KEY"))


def policy(rest: str, *, model: str = "m") -> Policy:
    text = f"schema_version: 1\ndeployments:\n  - {{id: a, url: 'http://a/v1', model: {model}{rest}}}\n"
    return load_policy(text, source="p")


def test_the_key_comes_from_the_environment_and_is_no_part_of_what_is_shown() -> None:
    reach = reach_of(HOSTED, {"HOSTED_KEY": f"{SECRET}\n"})
    assert reach.headers.sent == ((b"authorization", f"Bearer {SECRET}".encode()),)
    assert SECRET not in repr(reach)
    assert reach.tls is not None


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ("dns: engine.example, port: 8443, scheme: https", "engine.example"),
        ("list: a, scheme: https, tls_name: engine.test", "engine.test"),
        ("list: a, scheme: https", None),
        ("dns: engine.example, port: 8000", None),
    ],
)
def test_certificates_of_members_have_the_name_of_their_group(settings: str, name: str | None) -> None:
    text = f"schema_version: 1\ndeployments: [{{id: a, model: m, discover: {{{settings}}}}}]\n"
    group = load_policy(text, source="p").deployments[0]
    assert reach_of(sample_member(group), {}).target.tls_name == name


def test_a_deployment_without_a_key_gets_none() -> None:
    plain = Deployment(id="a", url="http://a", model="m")
    reach = reach_of(plain, {"HOSTED_KEY": SECRET})
    assert (reach.headers.sent, reach.tls) == ((), None)


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
        headers_of(HOSTED, environment)
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
    live.fixed_headers[b"", b""] = live.headers.sent
    after = builder.build(policy(", auth: {bearer_env: NEW}"), "r2", before)
    assert after.deployments["a"] is live
    assert live.headers.sent == ((b"authorization", b"Bearer new-key"),)
    assert live.fixed_headers == {}  # those with the old key are gone


def test_a_reload_that_names_an_unknown_variable_leaves_everything_as_it_was() -> None:
    builder = SnapshotBuilder(
        clock=time.monotonic, connect=connector_of(time.monotonic), rng=random.Random(7), environment={"OLD": "old-key"}
    )
    before = builder.build(policy(", auth: {bearer_env: OLD}, limits: {max_in_flight: 5}"), "r1")
    live = before.deployments["a"]
    with pytest.raises(ReachError):
        builder.build(policy(", auth: {bearer_env: NEW}, limits: {max_in_flight: 9}"), "r2", before)
    assert (live.headers.sent[0][1], live.limiter.limit) == (b"Bearer old-key", 5)


def test_a_key_in_a_header_of_its_own_and_further_headers_are_sent_as_they_are() -> None:
    found = policy(
        ", auth: {header: api-key, value_env: KEY}, headers: {x-org: team one, x-gate: {value_env: GATE}}"
    ).deployments[0]
    reach = reach_of(found, {"KEY": SECRET, "GATE": "gate-secret-1"})
    assert reach.headers.sent == (
        (b"api-key", SECRET.encode()),
        (b"x-org", b"team one"),
        (b"x-gate", b"gate-secret-1"),
    )
    assert reach.headers.secrets == (SECRET.encode(), b"gate-secret-1")
    assert SECRET not in repr(reach)
    assert "gate-secret-1" not in repr(reach)
    with pytest.raises(
        ReachError, match=r"deployments\.a\.headers\.x-gate\.value_env: the environment variable GATE is"
    ):
        reach_of(found, {"KEY": SECRET})


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("auth: {}", "either bearer_env, or header and value_env"),
        ("auth: {header: api-key}", "either bearer_env, or header and value_env"),
        ("auth: {bearer_env: A, header: api-key, value_env: B}", "either bearer_env, or header and value_env"),
        ("auth: {header: host, value_env: A}", "set by the gateway itself"),
        ("headers: {content-length: '5'}", "set by the gateway itself"),
        ("headers: {transfer-encoding: chunked}", "set by the gateway itself"),
        ("headers: {x-penstock-priority: high}", "set by the gateway itself"),
        ("headers: {authorization: Bearer abc}", "credentials belong into auth"),
        ('headers: {x-a: "b\\r\\nx-evil: c"}', "printable ASCII"),
        ("headers: {api-key: a}, auth: {header: api-key, value_env: A}", "header of auth already"),
        ("proxy: 'http://user:hunter2@proxy:3128'", "credentials do not belong here"),
        ("proxy: 'socks5://proxy:1080'", "expected http://host:port"),
        ("proxy: 'proxy'", "expected http://host:port"),
    ],
)
def test_what_would_change_the_gateways_own_headers_or_show_a_secret_is_refused(fields: str, problem: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policy(f", {fields}")
    assert problem in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_proxy_comes_from_the_policy_or_the_environment() -> None:
    environment = {"HTTP_PROXY": "http://me:hunter2@corp:3128", "OTHER": "http://other:81"}
    found = {
        text: reach_of(policy(f", {text}" if text else "").deployments[0], environment).proxy
        for text in ("", "proxy: none", "proxy: 'http://near:8080'", "proxy: {url_env: OTHER}")
    }
    assert [str(proxy) for proxy in found.values()] == [
        *("http://corp:3128", "None", "http://near:8080", "http://other:81"),
    ]
    assert "hunter2" not in repr(found)
    with pytest.raises(ReachError, match=r"proxy: the environment variable HTTP_PROXY: expected") as caught:
        reach_of(policy("").deployments[0], {"HTTP_PROXY": "socks5://me:hunter2@corp"})
    assert "hunter2" not in str(caught.value)


def test_a_changed_proxy_makes_new_connections() -> None:
    builder = SnapshotBuilder(
        clock=time.monotonic, connect=connector_of(time.monotonic), rng=random.Random(7), environment={}
    )
    before = builder.build(policy(""), "r1")
    after = builder.build(policy(", proxy: 'http://near:8080'"), "r2", before)
    assert after.deployments["a"] is not before.deployments["a"]
