"""Shadowing: a share of the questions goes to another deployment once more, after the client has its answer.

The client never sees the other answer. Nothing is sent while the gateway or the deployment is busy, and never more
at once than the route allows. Agreement of both answers is counted, and passed to the learner of predictions.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from gateway.background.background_request import BackgroundRequest, BackgroundRequester
from gateway.background.quality_learner import Learner
from gateway.background.task_group import BackgroundTasks
from gateway.cache.audit.comparison import is_equivalent, text_of
from gateway.cache.exact.capture import Capture
from gateway.chat.request import ChatRequest
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.telemetry.metrics import GatewayMetrics
from gateway.timeline import Outcome
from routing_policies.policy.members import group_of

VERDICTS: Final = {True: "same", False: "different", None: "unclear"}


class Shadower:
    """Shadower of answers: it draws before an answer begins, and sends the question after it has ended."""

    __slots__ = ("_is_strained", "_learner", "_metrics", "_num_sent", "_request", "_rng", "_tasks")

    def __init__(
        self,
        requester: BackgroundRequester,
        *,
        learner: Learner,
        metrics: GatewayMetrics,
        rng: random.Random,
        is_strained: Callable[[], bool],
        tasks: BackgroundTasks,
    ) -> None:
        self._request = requester
        self._learner = learner
        self._metrics = metrics
        self._rng = rng
        self._is_strained = is_strained
        self._num_sent: Counter[str] = Counter()
        self._tasks = tasks

    def draw(self, ctx: RequestContext, planned: PlannedRoute) -> None:
        """Draw whether this request's answer is compared with another deployment's; if so, copy it."""
        shadow = planned.route.select.shadow
        if shadow is None or self._rng.random() >= shadow.ratio or self._is_strained():
            return
        if self._num_sent[planned.route.id] < shadow.max_in_flight:
            ctx.is_shadowed = True
            ctx.capture = ctx.capture or Capture(None)

    def cast(self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute) -> None:
        """Send the question of a finished answer to the other deployment, in the background."""
        shadow, record = planned.route.select.shadow, ctx.record
        if shadow is None or record.outcome is not Outcome.COMPLETED:
            return
        # An answer of the shadow itself is as useful for the pair, once the other model has answered, too.
        other = shadow.id if group_of(record.deployment) != group_of(shadow.id) else planned.counterpart(shadow.id)
        if other is not None:
            self._num_sent[planned.route.id] += 1
            self._tasks.spawn(self._compare(ctx, request, planned, other), "shadow")

    async def _compare(self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, shadow: str) -> None:
        try:
            given = None if ctx.capture is None else await ctx.capture.completed()
            question = BackgroundRequest(request, ctx.snapshot, planned, ctx.record.tenant, ctx.cache_salt)
            answer = await self._request.deployment(question, ctx.snapshot.deployments[shadow])
            texts = [None if one is None else text_of(one) for one in (given, answer)]
            is_same = None if texts[0] is None or texts[1] is None else is_equivalent(texts[0], texts[1])
            verdict = "not_asked" if answer is None else VERDICTS[is_same]
            self._metrics.shadows.labels(planned.route.id, group_of(shadow), verdict).inc()
            if is_same is not None:
                ids = ctx.record.deployment, shadow
                await self._learner.note(question, ids, is_same=is_same, source="shadow", ctx=ctx)
        finally:
            self._num_sent[planned.route.id] -= 1

    async def aclose(self) -> None:
        """Call off what is under way."""
        await self._tasks.cancel()
