"""Checks that this process makes of a policy beyond the document's schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.config.checks import ConfigError
from gateway.config.exposure import exposure_problem
from gateway.config.settings import GatewayConfig
from gateway.policies.reading import PolicyChecks
from gateway.recalls.webhook import webhook_of
from gateway.routing.deployment_dialects import upstream_dialect_of
from gateway.upstreams.reach import reach_of
from routing_policies.policy.document import Policy
from routing_policies.policy.members import sample_member
from routing_policies.quality.predictor import Predictors


def acceptance(
    config: GatewayConfig, environment: Mapping[str, str], *, has_stored_keys: Callable[[], bool] = lambda: False
) -> Callable[[Policy], None]:
    """Return a check of policies.

    It raises ConfigError for listeners open without keys, and ReachError for a deployment that this process cannot
    reach, or whose dialect it cannot speak, and for a webhook that it may not call or cannot sign.
    """
    exposed = exposure_problem(config)

    def accept(policy: Policy) -> None:
        if exposed is not None and not policy.has_keys and not has_stored_keys():
            raise ConfigError(exposed)
        for deployment in policy.deployments:
            reach_of(sample_member(deployment), environment)
            upstream_dialect_of(deployment)
        for tenant in policy.tenants:
            webhook_of(tenant, environment, allows_private=config.cache.recalls.allow_private_webhooks)

    return accept


def policy_checks(
    config: GatewayConfig,
    environment: Mapping[str, str],
    predictors: Predictors | None = None,
    *,
    has_stored_keys: Callable[[], bool] = lambda: False,
) -> PolicyChecks:
    """Return this process's checks of a policy document."""
    accept = acceptance(config, environment, has_stored_keys=has_stored_keys)
    return PolicyChecks(variables=config.process.policy_variables, accept=accept, predictors=predictors)
