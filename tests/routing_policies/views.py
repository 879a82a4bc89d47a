"""Deployments in some state, for tests of choices."""

from __future__ import annotations

from routing_policies.views import DeploymentView


def view(
    name: str,
    *,
    ready: bool = True,
    ejected: bool = False,
    in_flight: int = 0,
    max_in_flight: int = 10,
    weight: float = 1.0,
) -> DeploymentView:
    """A candidate, ready and idle by default."""
    return DeploymentView(
        id=name,
        model=f"model-{name}",
        is_ready=ready,
        is_ejected=ejected,
        in_flight=in_flight,
        max_in_flight=max_in_flight,
        weight=weight,
    )
