"""Router: finds a request's route, and the route's deployment for each attempt."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from gateway.chat.headers import ChatHead
from gateway.chat.operation import CHAT, OPERATIONS, Operation
from gateway.chat.request import ChatRequest
from gateway.deployments.affinity import AffinityIndex, NamedSession, SessionPlaces, prefix_of
from gateway.deployments.live import LiveDeployment
from gateway.errors import InvalidRequest, ModelNotAllowed, NotFound, Shed, ShedReason, UpstreamsRest
from gateway.routing.adapter_routes import AdapterRoutes
from gateway.routing.candidate import Seen
from gateway.routing.facts import RequestFacts
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.routing_request import ExplorationSeed, RoutingRequest
from gateway.timeline import Clock
from routing_policies.decision import Decision
from routing_policies.matching import NoRoute, RequestView, RouteTable
from routing_policies.operations import route_for
from routing_policies.policy.document import Policy, Route
from routing_policies.policy.members import group_of
from routing_policies.policy.selection import Select
from routing_policies.quality.predictor import Predictors

_NOBODY: Final[frozenset[str]] = frozenset()
MAX_LISTED: Final = 16
"""Maximum number of models that a refusal names."""


class OperationPlan(NamedTuple):
    """An operation of a model, and the first route that may serve it."""

    operation: Operation
    planned: PlannedRoute


class Router:
    """The routes of one policy revision over the live deployments."""

    def __init__(
        self,
        policy: Policy,
        deployments: Mapping[str, LiveDeployment],
        rng: random.Random,
        clock: Clock,
        *,
        affinity: AffinityIndex | None = None,
        zone: str | None = None,
        predictors: Predictors | None = None,
    ) -> None:
        """Build the routes; `affinity` outlives revisions, and `zone` is where this gateway runs."""
        self._table = RouteTable(policy)
        self._deployments = deployments
        self._rng = rng
        self._rules = {rule.id: rule for rule in policy.deployments}
        self._groups: dict[str, list[str]] = {}
        """Ids of the deployments by the id in the policy; several for a group with members."""
        for rule in policy.deployments:
            self._groups.setdefault(group_of(rule.id), []).append(rule.id)
        self._affinity = affinity or AffinityIndex()
        self._predictors = predictors or Predictors()
        self._session_places = SessionPlaces(policy.session_places)
        # No method of this object: a cycle would keep each old revision until the next full collection.
        self._plan = partial(
            PlannedRoute,
            deployments=deployments,
            clock=clock,
            rules=self._rules,
            zone=zone,
            predictors=self._predictors,
            rng=rng,
        )
        # The two implied kinds share an id, so routes are compared as objects; they live as long as the table.
        self._planned = self._plan_all(policy)
        self._own_routes = frozenset(route.id for route in policy.routes)
        self._tracks_prefixes = any(lane.slo is not None for lane in policy.lanes) or any(
            planned.profile.reads_affinity and len(planned.candidates) > 1 for planned in self._planned.values()
        )
        """True if any lane or route depends on the prefixes that deployments have cached."""
        for operation in OPERATIONS:
            self._link_fallbacks(operation)
        self._adapters = AdapterRoutes(self._table.knows, policy.deployments, deployments, self._plan)
        conditions = self._table.conditions.values()
        self._has_conditions = bool(conditions)
        self.reads_headers = any(route.match.headers for route in self._table.effective_routes()) or any(
            condition.needs_headers for condition in conditions
        )
        """True if `match` reads headers; otherwise they need not be decoded."""
        named = [name for route in self._table.effective_routes() for name in route.match.headers]
        self.header_names = tuple(dict.fromkeys([*named, *(name for item in conditions for name in item.headers)]))
        """Names of the headers that `match` reads."""
        self._known: dict[tuple[str, str | None, str], PlannedRoute] = {}
        """Matches that headers cannot change; at most as many as there are tenants times model names."""

    def _plan_all(self, policy: Policy) -> dict[tuple[int, str], PlannedRoute]:
        """Return every route for every operation that any of its candidates serves."""
        planned: dict[tuple[int, str], PlannedRoute] = {}
        for route in self._table.effective_routes():
            for operation in OPERATIONS:
                fitting = route_for(route, operation.name, policy.deployments, partial(self._serves, operation))
                if fitting is not None:
                    planned[id(route), operation.name] = self._plan(fitting)
        return planned

    def _serves(self, operation: Operation, deployment: str) -> bool:
        return self._deployments[deployment].serves_operation(operation)

    def _link_fallbacks(self, operation: Operation) -> None:
        """Give every planned route the fallbacks that serve the operation."""
        routes = [planned for (_, name), planned in self._planned.items() if name == operation.name]
        by_id = {planned.route.id: planned for planned in routes}
        for planned in routes:
            planned.fallbacks = tuple(
                by_id[name] if name in by_id else self._lone(name)
                for name in planned.route.select.fallback
                if name in by_id or (name in self._groups and self._serves(operation, self._groups[name][0]))
            )

    def _lone(self, deployment: str) -> PlannedRoute:
        """Return a deployment, or a group's members, as a fallback: a route of its own."""
        return self._plan(Route(id=deployment, select=Select(candidates=tuple(self._groups[deployment]))))

    def match(
        self, model: str, tenant: str | None, headers: Mapping[str, str], request: ChatRequest | None = None
    ) -> PlannedRoute:
        """Return the route for this request. Without `request` no condition holds, and the operation is chat.

        Raises:
            NotFound: No route serves the model, or no deployment of it has the adapter that the name ends with.
            ModelNotAllowed: The tenant may not use the model.
            InvalidRequest: The model does not serve the request's operation.
        """
        operation = CHAT if request is None else request.operation
        known = self._known.get((model, tenant, operation.name))
        if known is not None:
            return known
        base, adapter = self.split(model)
        if adapter is not None:
            return self._adapters.planned(self.match(base, tenant, headers, request), operation, adapter, model)
        facts = RequestFacts(request) if self._has_conditions and request is not None else None
        planned = self._planned.get((id(self._match(model, tenant, headers, facts)), operation.name))
        if planned is None:
            raise self._unable(model, tenant, operation)
        if not self.reads_headers and not self._has_conditions:
            self._known[model, tenant, operation.name] = planned
        return planned

    def planned_of(self, route_id: str, adapter: str | None = None) -> PlannedRoute | None:
        """Return the chat plan of the policy's own route with this id; None without that route."""
        for (_, operation), planned in self._planned.items():
            if planned.route.id == route_id and operation == CHAT.name and route_id in self._own_routes:
                return planned if adapter is None else self._plan(planned.route, adapter=adapter)
        return None

    def _unable(self, model: str, tenant: str | None, operation: Operation) -> InvalidRequest:
        """Return the refusal of an operation that no candidate of the model serves."""
        served = [plan.operation.name for plan in self.plans_of(model, tenant)]
        able = [name for name in self.models_for(tenant) if self.serves(name, tenant, operation)]
        others = f"For {operation.name} use {_listed(able)}." if able else f"No model here serves {operation.name}."
        return InvalidRequest(
            f"Model '{_shown(model)}' serves {_listed(served)}, not {operation.name}. {others}",
            param="model",
            code="unsupported_operation",
        )

    def serves(self, model: str, tenant: str | None, operation: Operation) -> bool:
        """Return whether a model that the tenant may request serves an operation."""
        return any(plan.operation is operation for plan in self.plans_of(model, tenant))

    def plans_of(self, model: str, tenant: str | None) -> tuple[OperationPlan, ...]:
        """Return the operations that a model serves for a tenant, each with the first route that may take it."""
        found: dict[str, OperationPlan] = {}
        for route in self._table.routes_of(model, tenant):
            for operation in OPERATIONS:
                planned = self._planned.get((id(route), operation.name))
                if planned is not None:
                    found.setdefault(operation.name, OperationPlan(operation, planned))
        return tuple(found[operation.name] for operation in OPERATIONS if operation.name in found)

    def _match(self, model: str, tenant: str | None, headers: Mapping[str, str], facts: RequestFacts | None) -> Route:
        try:
            return self._table.match(RequestView(model=model, tenant=tenant, headers=headers, facts=facts))
        except NoRoute as error:
            if error.code == "model_not_allowed":
                raise ModelNotAllowed(
                    f"This key may not use the model '{_shown(model)}'. GET /v1/models lists what it may use.",
                    param="model",
                ) from None
            raise NotFound(
                f"There is no model '{_shown(model)}' here. GET /v1/models lists what this key may use.",
                param="model",
                code="model_not_found",
            ) from None

    def session_of(self, planned: PlannedRoute, request: ChatRequest, head: ChatHead) -> NamedSession | None:
        """Return the session that the request names, where any rule depends on it."""
        if not self._tracks_prefixes and not planned.profile.reads_key:
            return None
        return self._session_places.find(request, head)

    def user_of(self, request: ChatRequest, head: ChatHead) -> str | None:
        """Return who sends the request, by its field `user` or else by a session header; None where neither names one.

        A cache key names no user: many users of one product may share it.
        """
        return request.fields.user or self._session_places.sender(head)

    def with_history(
        self, routing_request: RoutingRequest, request: ChatRequest, named: NamedSession | None = None
    ) -> RoutingRequest:
        """Return the request with the tokens that each deployment has cached, where any rule depends on them."""
        if not self._tracks_prefixes or not request.operation.generates:
            return routing_request
        price, tenant, affinity = routing_request.price, routing_request.admission_request.tenant, self._affinity
        _, adapter = self.split(request.model)
        owner = tenant if adapter is None else f"{tenant}:{adapter}"
        prefix, session = prefix_of(request, owner), None if named is None else named.key(tenant)
        held: dict[str, int] = {}
        if chars := affinity.held_chars(prefix, tenant):
            per_char = price.prompt_tokens / (prefix[-1][1] or 1)
            for name, num_chars in chars.items():
                live = self._deployments.get(name)
                if live is not None:
                    held[name] = int(num_chars * per_char * live.forecast.cache_trust)
        last = None if session is None else affinity.last_of(session, tenant)
        return RoutingRequest(
            price,
            routing_request.admission_request,
            held,
            prefix,
            session,
            last,
            routing_request.tpot_slo_s,
            routing_request.key,
            routing_request.verdict,
        )

    def pick(
        self,
        planned: PlannedRoute,
        already_tried: frozenset[str],
        lane: str,
        routing_request: RoutingRequest | None = None,
        avoid: frozenset[str] = _NOBODY,
        seen: Sequence[Seen] = (),
        seed: ExplorationSeed | None = None,
    ) -> tuple[LiveDeployment, Decision]:
        """Return the deployment for this attempt, which may have to be waited for.

        One of `avoid` is taken only when no other can serve. The chosen one counts as holding the request's beginning.
        With `seed`, on a route that explores, the choice may be random; it then depends on the request's id alone.

        Raises:
            Shed: None is fit.
        """
        if seed is None:
            decision = planned.decide(already_tried, self._rng, routing_request, avoid, seen)
        else:
            decision = planned.decide(already_tried, random.Random(seed.request_id), routing_request, avoid, seen)
            if decision.deployment is not None and not decision.is_panic and routing_request is not None:
                decision = planned.explored(decision, routing_request, seed, avoid)
        if decision.deployment is None or decision.is_panic:
            live, decision = self._pick_instead(planned, decision, already_tried, lane, routing_request)
        else:
            live = self._deployments[decision.deployment]
        if routing_request is not None and routing_request.prefix:
            tenant = routing_request.admission_request.tenant
            self._affinity.note(routing_request.prefix, routing_request.session, live.id, tenant)
        return live, decision

    def _pick_instead(
        self,
        planned: PlannedRoute,
        decision: Decision,
        already_tried: frozenset[str],
        lane: str,
        routing_request: RoutingRequest | None,
    ) -> tuple[LiveDeployment, Decision]:
        """Return a fallback's deployment where the route's own cannot serve, else one of its own to wait for."""
        if planned.fallbacks and (decision.is_panic or not decision.is_possible):
            for other in planned.fallbacks:
                instead = other.decide(already_tried, self._rng, routing_request)
                if instead.is_possible and not instead.is_panic:
                    planned, decision = other, instead
                    break
        if decision.deployment is not None:
            return self._deployments[decision.deployment], decision
        if decision.is_saturated:
            return planned.shortest_queue(decision), decision
        raise _nobody_ready(planned, lane)

    @property
    def learns(self) -> bool:
        """Return whether any route can use labels of answer quality."""
        return any(
            planned.pair_predictors or planned.route.select.shadow is not None for planned in self._planned.values()
        )

    def has_another(self, planned: PlannedRoute, already_tried: frozenset[str]) -> bool:
        """Return whether a further attempt would find a fit deployment, free or full."""
        return any(option.decide(already_tried, self._rng).is_possible for option in (planned, *planned.fallbacks))

    def models_for(self, tenant: str | None) -> tuple[str, ...]:
        """Return the model names that this tenant may use, without adapters."""
        return self._table.models_for(tenant)

    def adapters_of(self, model: str, tenant: str | None) -> tuple[str, ...]:
        """Return the adapters that a tenant's requests for a model may name."""
        return tuple(sorted({name for plan in self.plans_of(model, tenant) for name in plan.planned.adapters()}))

    def split(self, model: str) -> tuple[str, str | None]:
        """Return a requested name as model and adapter; the latter is None where the policy has the whole name."""
        return self._adapters.split(model) if ":" in model else (model, None)


def _listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence, shortened where there are many."""
    shown = [*names[:MAX_LISTED], f"{len(names) - MAX_LISTED} more"] if len(names) > MAX_LISTED else list(names)
    return " and ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part) or "nothing"


def _nobody_ready(planned: PlannedRoute, lane: str) -> Shed:
    """Return the refusal for a route without a fit deployment."""
    wait_s = planned.returns_in_s()
    if wait_s:
        return UpstreamsRest(
            ShedReason.OVERLOAD,
            lane=lane,
            message=f"The deployments of route '{planned.route.id}' requested a backoff of {math.ceil(wait_s)} s. "
            "Try again after the time in Retry-After.",
            hint="The same request at a later time.",
            retry_after_s=wait_s,
            predicted_wait_s=wait_s,
        )
    return Shed(
        ShedReason.OVERLOAD,
        lane=lane,
        message=f"No deployment of route '{planned.route.id}' is ready. Try again later.",
        hint="The same request at a later time.",
    )


def _shown(model: str) -> str:
    """Return the name as it may stand in a message: printable and short."""
    return "".join(character if character.isprintable() else "?" for character in model[:100])
