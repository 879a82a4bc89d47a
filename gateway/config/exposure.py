"""Check that listeners which other machines reach stand behind a key."""

from __future__ import annotations

from gateway.config.addresses import is_loopback
from gateway.config.checks import ConfigError
from gateway.config.settings import GatewayConfig
from routing_policies.policy.document import Policy


def exposure_problem(config: GatewayConfig) -> str | None:
    """Return the problem of listeners that other machines reach while the policy has no key.

    None when only this machine reaches them.
    """
    for key, address in (("public.listen", config.public.listen), ("admin.listen", config.admin.listen)):
        if not is_loopback(address):
            return (
                f"{key}: {address} is open to other machines and the policy has no tenant with a key; "
                "add one (penstock keys new --tenant NAME prints it) or listen on 127.0.0.1"
            )
    return None


def require_keys_when_exposed(config: GatewayConfig, policy: Policy) -> None:
    """Allow only loopback listeners without any tenant key. Raises ConfigError."""
    problem = None if policy.has_keys else exposure_problem(config)
    if problem is not None:
        raise ConfigError(problem)
