"""FollowUp: the use of a deployment's answer for later requests: prices, labels, a background comparison."""

from __future__ import annotations

from gateway.background.quality_learner import Learner
from gateway.background.shadowing import Shadower
from gateway.chat.request import ChatRequest
from gateway.deployments.price import Pricer
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute


class FollowUp:
    """Learning from answers that were passed on whole."""

    __slots__ = ("_learner", "_pricer", "_shadower")

    def __init__(self, pricer: Pricer, learner: Learner, shadower: Shadower) -> None:
        self._pricer = pricer
        self._learner = learner
        self._shadower = shadower

    def draw(self, ctx: RequestContext, planned: PlannedRoute) -> None:
        """Decide before the answer begins whether it will be compared with another's."""
        self._shadower.draw(ctx, planned)

    def learn(self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute) -> None:
        """Learn from the finished answer to `request`."""
        record = ctx.record
        if record.usage is not None:
            self._pricer.settle(request, record.usage, tenant=record.tenant, route=record.route)
        if planned.pair_predictors:
            self._learner.remember(ctx)
        if ctx.is_shadowed:
            self._shadower.cast(ctx, request, planned)
