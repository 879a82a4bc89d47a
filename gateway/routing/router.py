"""Router: from a request to its route, and from the route to one deployment after another until one takes it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from gateway.errors import ModelNotAllowed, NotFound, Shed, ShedReason
from gateway.routing.live import LiveDeployment
from gateway.upstreams.timeouts import Timeouts
from routing_policies.decision import Decision
from routing_policies.document import Policy, Route
from routing_policies.matching import NoRoute, RequestView, RouteTable
from routing_policies.profile import Profile, profile_for
from routing_policies.views import Attempt, DeploymentView

_FIRST_ATTEMPT: Final = Attempt()


class PlannedRoute:
    """One route of one revision, with everything that can be worked out before a request comes."""

    __slots__ = (
        "_foregone",
        "candidates",
        "context_tokens",
        "plain_timeouts",
        "profile",
        "route",
        "stream_timeouts",
    )

    def __init__(self, route: Route, deployments: Mapping[str, LiveDeployment]) -> None:
        self.route = route
        self.profile: Profile = profile_for(route.select.policy)
        self.candidates = tuple((deployments[item.id], item.weight) for item in route.select.resolved())
        self._foregone = self._decide_alone() if self.profile.takes_first or len(self.candidates) == 1 else None
        contexts = [live.context_tokens for live, _ in self.candidates]
        known = [context for context in contexts if context is not None]
        self.context_tokens = max(known) if len(known) == len(contexts) else None
        """The largest context among the candidates; None when that of any one is unknown."""
        limits = route.timeouts
        connect_s, total_s, gap_s = limits.connect_ms / 1000, limits.total_ms / 1000, limits.inter_token_ms / 1000
        self.stream_timeouts = Timeouts(
            connect_s=connect_s, first_byte_s=limits.first_token_ms / 1000, inter_chunk_s=gap_s, total_s=total_s
        )
        # A plain answer is one piece that comes when all of it was generated: only the total can be late.
        self.plain_timeouts = Timeouts(connect_s=connect_s, first_byte_s=total_s, inter_chunk_s=gap_s, total_s=total_s)

    def decide(self, already_tried: frozenset[str], rng: random.Random) -> Decision:
        """Which candidate takes this attempt, by the state of this moment."""
        if self._foregone is not None and not already_tried:
            first, _ = self.candidates[0]
            if first.is_ready and first.limiter.in_flight < first.limiter.limit:
                return self._foregone
        attempt = Attempt(already_tried=already_tried) if already_tried else _FIRST_ATTEMPT
        return self.profile.decide([_view(live, weight) for live, weight in self.candidates], attempt, rng)

    def _decide_alone(self) -> Decision:
        """What is decided whenever the first candidate is fit and no other can win: worked out once, for the others
        are not looked at then."""
        live, weight = self.candidates[0]
        view = DeploymentView(id=live.id, model=live.model, is_ready=True, weight=weight)
        return self.profile.decide([view], _FIRST_ATTEMPT, random.Random(0))

    def shortest_queue(self, decision: Decision) -> LiveDeployment:
        """Of the candidates that lack only a permit, the one whose queue is shortest for its size."""
        full = [live for live, _ in self.candidates if decision.dropped.get(live.id) == "full"]
        return min(full, key=lambda live: live.limiter.num_waiting / live.limiter.limit)


def _view(live: LiveDeployment, weight: float) -> DeploymentView:
    return DeploymentView(
        id=live.id,
        model=live.model,
        is_ready=live.is_ready,
        in_flight=live.limiter.in_flight,
        max_in_flight=live.limiter.limit,
        weight=weight,
    )


class Router:
    """The routes of one policy revision over the live deployments."""

    def __init__(self, policy: Policy, deployments: Mapping[str, LiveDeployment], rng: random.Random) -> None:
        self._table = RouteTable(policy)
        self._deployments = deployments
        self._rng = rng
        # The two implied kinds share an id, so routes are told apart as objects; they live as long as the table.
        self._planned = {id(route): PlannedRoute(route, deployments) for route in self._table.effective_routes()}
        self.reads_headers = any(route.match.headers for route in self._table.effective_routes())
        """Whether `match` looks at headers at all; when not, they need not be decoded."""
        self._known: dict[tuple[str, str | None], PlannedRoute] = {}
        """Matches that headers cannot change; as many as there are tenants times model names."""

    def match(self, model: str, tenant: str | None, headers: Mapping[str, str]) -> PlannedRoute:
        """The route for this request; raises NotFound or ModelNotAllowed."""
        known = self._known.get((model, tenant))
        if known is not None:
            return known
        planned = self._planned[id(self._match(model, tenant, headers))]
        if not self.reads_headers:
            self._known[model, tenant] = planned
        return planned

    def _match(self, model: str, tenant: str | None, headers: Mapping[str, str]) -> Route:
        try:
            return self._table.match(RequestView(model=model, tenant=tenant, headers=headers))
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

    def pick(self, planned: PlannedRoute, already_tried: frozenset[str], lane: str) -> tuple[LiveDeployment, Decision]:
        """The deployment for this attempt, which may have to be waited for; raises Shed when none is fit."""
        decision = planned.decide(already_tried, self._rng)
        if decision.deployment is not None:
            return self._deployments[decision.deployment], decision
        if decision.is_saturated:
            return planned.shortest_queue(decision), decision
        raise Shed(
            ShedReason.OVERLOAD,
            lane=lane,
            message=f"No deployment of route '{planned.route.id}' is ready. Try again later.",
            hint="The same request at a later time.",
        )

    def models_for(self, tenant: str | None) -> tuple[str, ...]:
        """Names that this tenant may ask for."""
        return self._table.models_for(tenant)


def _shown(model: str) -> str:
    """The name as it may stand in a message: printable and short."""
    return "".join(character if character.isprintable() else "?" for character in model[:100])
