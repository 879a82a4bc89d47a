"""Routes of requests that name an adapter: `model:adapter` goes where the model goes, to engines with that adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from gateway.chat.operation import Operation
from gateway.deployments.live import LiveDeployment
from gateway.errors import NotFound
from gateway.routing.planned_route import PlannedRoute
from routing_policies.operations import route_for
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.document import Route

_MAX_ROUTES: Final = 1024
_MAX_SHOWN: Final = 64


class Plan(Protocol):
    """Constructor of a planned route whose candidates use an adapter."""

    def __call__(self, route: Route, *, adapter: str | None = None) -> PlannedRoute:
        """Return the planned route."""
        ...


class AdapterRoutes:
    """Routes restricted to the deployments that have an adapter; each is planned once for the same deployments.

    They have no fallbacks and no shadows: another model's answer is not the adapter's.
    """

    def __init__(
        self,
        knows: Callable[[str], bool],
        rules: Sequence[Deployment],
        deployments: Mapping[str, LiveDeployment],
        plan: Plan,
    ) -> None:
        """Create the routes; `knows` returns whether the policy has a model name."""
        self._knows = knows
        self._rules = rules
        self._deployments = deployments
        self._plan = plan
        self._planned: dict[tuple[int, str, frozenset[str]], PlannedRoute] = {}

    def split(self, model: str) -> tuple[str, str | None]:
        """Return a requested name as model and adapter; the latter is None where the policy has the whole name."""
        base, colon, adapter = model.rpartition(":")
        if not colon or not adapter or self._knows(model) or not self._knows(base):
            return model, None
        return base, adapter

    def planned(self, of_model: PlannedRoute, operation: Operation, adapter: str, model: str) -> PlannedRoute:
        """Return the model's route for requests that name an adapter.

        Raises:
            NotFound: No candidate has the adapter.
        """
        ids = frozenset(live.id for live, _ in of_model.candidates if adapter in live.adapters)
        if not ids:
            raise NotFound(
                f"There is no model '{model[:_MAX_SHOWN]}' here: no deployment has the adapter loaded. "
                "GET /v1/models lists what this key may use.",
                param="model",
                code="model_not_found",
            )
        # Routes of a model live as long as the router, so their ids stay theirs.
        key = id(of_model), adapter, ids
        found = self._planned.get(key)
        if found is None:
            if len(self._planned) >= _MAX_ROUTES:
                self._planned.clear()
            found = self._planned[key] = self._restricted(of_model.route, operation, ids, adapter)
        return found

    def _restricted(self, route: Route, operation: Operation, ids: frozenset[str], adapter: str) -> PlannedRoute:
        fitting = route_for(route, operation.name, self._rules, ids.__contains__)
        assert fitting is not None, "at least one candidate has the adapter"
        select = msgspec.structs.replace(fitting.select, fallback=(), shadow=None)
        return self._plan(msgspec.structs.replace(fitting, select=select), adapter=adapter)
