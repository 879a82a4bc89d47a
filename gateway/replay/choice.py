"""The deployment that a request would get now, without serving it."""

from __future__ import annotations

import random
from typing import NamedTuple

from gateway.chat.request import ChatRequest
from gateway.deployments.price import Pricer
from gateway.limits.permit import AdmissionRequest
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.routing_request import RoutingRequest
from gateway.routing.snapshot import PolicySnapshot
from routing_policies.decision import Decision
from routing_policies.quality.pairs import QualityPrediction


class ChoiceNow(NamedTuple):
    """A decision that no request waits for."""

    decision: Decision
    verdict: QualityPrediction | None
    """Predicted quality; None where the choice does not depend on it."""


def choice_now(
    snapshot: PolicySnapshot, planned: PlannedRoute, request: ChatRequest, tenant: str, pricer: Pricer
) -> ChoiceNow:
    """Return the decision that a tenant's request would get now, in its own lane and without a deadline.

    The policy has the tenant.
    """
    caller = snapshot.keys.caller_of(tenant)
    assert caller is not None, "the policy has the tenant"
    lane = snapshot.lanes[caller.lane(None, snapshot.default_lane)]
    price = pricer.price(request, tenant=tenant, route=planned.route.id)
    routing_request = RoutingRequest(price, AdmissionRequest(lane, tenant, price.work_tokens))
    if planned.reads_prompt:
        routing_request = planned.weighed(routing_request, request, tenant)
    decision = planned.decide(frozenset(), random.Random(0), routing_request)
    for fallback in planned.fallbacks if not decision.is_possible else ():
        instead = fallback.decide(frozenset(), random.Random(0), routing_request)
        if instead.is_possible:
            return ChoiceNow(instead, routing_request.verdict)
    return ChoiceNow(decision, routing_request.verdict)
