"""Listeners that other machines reach stand behind a key."""

from __future__ import annotations

import pytest

from gateway.config.checks import ConfigError
from gateway.config.exposure import require_keys_when_exposed
from gateway.config.settings import GatewayConfig
from gateway.config.sources import config_of
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.document import Policy, Tenant, TenantKey

DEPLOYMENTS = (Deployment(id="a", url="http://a", model="m"),)


OPEN = Policy(schema_version=1, deployments=DEPLOYMENTS)


KEYED = Policy(
    schema_version=1, deployments=DEPLOYMENTS, tenants=(Tenant(id="t", keys=(TenantKey(id="k", sha256="0" * 64),)),)
)


@pytest.mark.parametrize("key", ["public.listen", "admin.listen"])
def test_a_gateway_without_keys_refuses_to_listen_to_other_machines(key: str) -> None:
    exposed = config_of({key: "0.0.0.0:9000", "admin.allow_remote": True})
    with pytest.raises(ConfigError, match=f"{key}: 0.0.0.0:9000 is open to other machines .*penstock keys new"):
        require_keys_when_exposed(exposed, OPEN)
    require_keys_when_exposed(exposed, KEYED)
    require_keys_when_exposed(GatewayConfig(), OPEN)
