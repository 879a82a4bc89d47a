"""Policies that this process would not serve, whatever their document says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.app.policy_acceptance import acceptance, policy_checks
from gateway.config.checks import ConfigError
from gateway.config.settings import GatewayConfig
from gateway.config.sources import config_of
from gateway.policies.errors import InvalidPolicy
from gateway.policies.reading import DocumentReader
from gateway.upstreams.reach import ReachError
from routing_policies.loading import load_policy

OPEN = "schema_version: 1\ndeployments: [{id: a, url: 'http://a', model: m}]\n"
KEYED = OPEN + f'tenants: [{{id: shop, keys: [{{id: k, sha256: "{"ab" * 32}"}}]}}]\n'
SECRET = OPEN.replace("model: m", "model: m, auth: {bearer_env: KEY}")


def config(**settings: Any) -> GatewayConfig:
    return config_of({path.replace("_", ".", 1): value for path, value in settings.items()})


def test_an_open_listener_needs_a_key_in_the_document_or_in_the_store() -> None:
    exposed = config(public_listen="0.0.0.0:8080")
    with pytest.raises(ConfigError, match=r"public\.listen"):
        acceptance(exposed, {})(load_policy(OPEN, source="p"))
    acceptance(exposed, {})(load_policy(KEYED, source="p"))
    acceptance(exposed, {}, has_stored_keys=lambda: True)(load_policy(OPEN, source="p"))
    acceptance(config(), {})(load_policy(OPEN, source="p"))


def test_keys_of_the_store_are_looked_for_each_time() -> None:
    has_keys = [True]
    accept = acceptance(config(public_listen="0.0.0.0:8080"), {}, has_stored_keys=lambda: has_keys[0])
    accept(load_policy(OPEN, source="p"))
    has_keys[0] = False
    with pytest.raises(ConfigError):
        accept(load_policy(OPEN, source="p"))


def test_a_deployment_out_of_reach_is_refused_with_the_missing_variable() -> None:
    policy = load_policy(SECRET, source="p")
    with pytest.raises(ReachError, match="KEY"):
        acceptance(config(), {})(policy)
    acceptance(config(), {"KEY": "k" * 20})(policy)


def test_a_reader_with_these_checks_knows_the_runtime_directory() -> None:
    reader = DocumentReader(policy_checks(config(process_runtime_dir=Path("/run/here")), {}))
    policy = reader.read(OPEN.replace("http://a", "unix:${runtime_dir}/a.sock"))
    assert policy.deployments[0].url == "unix:/run/here/a.sock"
    with pytest.raises(InvalidPolicy, match="KEY"):
        reader.read(SECRET)


def test_a_webhook_needs_its_secret_and_a_public_address_unless_settings_allow_others() -> None:
    url = "https://10.0.0.1/hook"
    policy = load_policy(
        f"{OPEN}tenants: [{{id: shop, recall_webhook: {{url: '{url}', secret_env: S}}}}]\n", source="p"
    )
    allowing = config_of({"cache.recalls.allow_private_webhooks": True})
    with pytest.raises(ReachError, match=r"^tenants\.shop\.recall_webhook\.url: 10\.0\.0\.1 is in a private network"):
        acceptance(config(), {"S": "x" * 16})(policy)
    with pytest.raises(ReachError, match=r"^tenants\.shop\.recall_webhook\.secret_env: .* S is not set"):
        acceptance(allowing, {})(policy)
    acceptance(allowing, {"S": "x" * 16})(policy)
