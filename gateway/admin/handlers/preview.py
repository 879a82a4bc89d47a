"""`POST /admin/api/explain`: what would become of a request, without sending it: route, trimming, cache, candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from starlette.responses import Response

from gateway.access.api_keys import DEV_TENANT
from gateway.access.identity import Role
from gateway.admin.api.fields import RequestBody
from gateway.admin.api.request import AdminRequest, serves
from gateway.api.application import ApiResponse
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.deployments.price import Pricer
from gateway.errors import InvalidRequest
from gateway.replay.choice import ChoiceNow, choice_now
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.snapshot import PolicySnapshot
from gateway.timeline import Clock
from gateway.trimming.trim_stage import TrimStage
from gateway.util.workers import Workers
from routing_policies.decision import DropReason
from routing_policies.policy.selection import Cascade

EXPLAIN_PATH: Final = "/admin/api/explain"
_MAX_BYTES: Final = 1024 * 1024


class Preview(RequestBody, frozen=True, kw_only=True):
    """The body of a preview request: a chat request's body, and its sender."""

    request: dict[str, Any]
    tenant: str | None = None
    """The sending tenant; None: that of loopback clients, where the policy has no keys."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class PreviewHandlers:
    """Previews requests; nothing is counted, sent, stored or held."""

    def __init__(
        self,
        policy: Callable[[], PolicySnapshot],
        parser: ChatRequestParser,
        trims: TrimStage,
        pricer: Pricer,
        clock: Clock,
        workers: Workers,
    ) -> None:
        self._policy = policy
        self._parser = parser
        self._trims = trims
        self._pricer = pricer
        self._clock = clock
        self._workers = workers

    @serves(EXPLAIN_PATH, "POST", role=Role.VIEWER, max_bytes=_MAX_BYTES)
    async def explain(self, request: AdminRequest) -> Response:
        """Preview a request. Raises the errors that the request itself would get."""
        form = request.fill(Preview)
        snapshot = self._policy()
        tenant = form.tenant or DEV_TENANT
        if snapshot.keys.caller_of(tenant) is None:
            raise InvalidRequest("tenant: the policy in force has no tenant of that name.", param="tenant")
        chat = await self._workers.run(self._parser.parse, msgspec.json.encode(form.request))
        headers = {name.lower(): value for name, value in form.headers.items()}
        planned = snapshot.router.match(chat.model, tenant, headers, chat)
        trim = await self._trimmed(chat, planned, tenant)
        choice = _with_drains(snapshot, choice_now(snapshot, planned, chat, tenant, self._pricer))
        return ApiResponse(
            {
                "tenant": tenant,
                "model": chat.model,
                "route": planned.route.id,
                "policy": snapshot.revision,
                "trim": trim,
                "cache": {"mode": planned.route.cache.mode, "scope": planned.route.cache.scope},
                "select": _selection(planned, choice),
                "candidates": [
                    {**_candidate(snapshot, name, self._clock()), **_prediction(choice, name)}
                    for name in _names(planned)
                ],
            }
        )

    async def _trimmed(self, request: ChatRequest, planned: PlannedRoute, tenant: str) -> dict[str, Any]:
        rule = planned.route.trim
        bytes_per_token = self._pricer.bytes_per_token(request, tenant=tenant)
        trimmed = await self._trims.cut(request, rule, bytes_per_token, tenant)
        return {
            "budget_tokens": rule.budget_tokens,
            "strategies": rule.strategies,
            "tokens_before": int(request.text_bytes / bytes_per_token),
            "tokens_after": int(trimmed.request.text_bytes / bytes_per_token),
            "cut": [{"strategy": name, "tokens": int(cut / bytes_per_token)} for name, cut in trimmed.cut_bytes],
            "messages": trimmed.request.document["messages"] if trimmed.cut_bytes else None,
        }


def _with_drains(snapshot: PolicySnapshot, choice: ChoiceNow) -> ChoiceNow:
    """Return the choice with `drained` as the reason of candidates that operators took out of service."""
    dropped: dict[str, DropReason] = {
        name: "drained" if reason == "not_ready" and snapshot.deployments[name].is_draining else reason
        for name, reason in choice.decision.dropped.items()
    }
    return choice._replace(decision=msgspec.structs.replace(choice.decision, dropped=dropped))


def _selection(planned: PlannedRoute, choice: ChoiceNow) -> dict[str, Any]:
    """Return who would be chosen, and the thresholds that a predicted quality is compared with."""
    select, decision = planned.route.select, choice.decision
    skip_below = (select.cascade or Cascade()).skip_below if select.policy == "cascade" else None
    return {
        "policy": select.policy,
        "fallback": select.fallback,
        "explore": select.explore,
        "chosen": decision.deployment,
        "cause": decision.cause,
        "reason": decision.reason,
        "min_quality": select.min_quality,
        "skip_below": skip_below,
    }


def _prediction(choice: ChoiceNow, name: str) -> dict[str, Any]:
    """Return the predicted quality of a candidate, None where nothing is predicted, and why it is out, if it is."""
    verdict = choice.verdict
    quality = None if verdict is None else verdict.quality.get(name)
    return {
        "quality": None if quality is None else round(quality, 3),
        "is_known_prompt": None if verdict is None else verdict.is_known,
        "dropped": choice.decision.dropped.get(name),
    }


def _names(planned: PlannedRoute) -> list[str]:
    return [candidate.id for candidate in planned.route.select.resolved()]


def _candidate(snapshot: PolicySnapshot, name: str, now: float) -> dict[str, Any]:
    live = snapshot.deployments[name]
    return {
        "id": name,
        "model": live.model,
        "is_ready": live.is_ready,
        "is_draining": live.is_draining,
        "ready_in_s": live.ready_in_s(now),
        "in_flight": live.in_flight,
        "limit": live.limiter.limit,
    }
