"""What this process asks of a policy beyond what the document's schema can say."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.config import GatewayConfig, require_keys_when_exposed
from gateway.routing.reach import reach_of
from routing_policies.document import Policy


def acceptance(
    config: GatewayConfig, environment: Mapping[str, str], *, has_stored_keys: Callable[[], bool] = lambda: False
) -> Callable[[Policy], None]:
    """A check that raises ConfigError for listeners open without keys, ReachError for a deployment out of reach."""

    def accept(policy: Policy) -> None:
        if not has_stored_keys():
            require_keys_when_exposed(config, policy)
        for deployment in policy.deployments:
            reach_of(deployment, environment)

    return accept
