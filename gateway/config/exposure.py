"""Check that listeners which other machines reach stand behind a key."""

from __future__ import annotations

from gateway.config.addresses import is_loopback
from gateway.config.settings import GatewayConfig


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
