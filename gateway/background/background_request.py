"""BackgroundRequester: requests that no client waits for, sent only to deployments with spare capacity."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

import msgspec

from gateway.chat.json_members import encoded, with_cache_salt, without_members
from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.completion.answer_end import end_of_plain
from gateway.deployments.live import LiveDeployment
from gateway.errors import InvalidRequest, UpstreamFailed
from gateway.limits.lane import LiveLane
from gateway.limits.permit import AdmissionRequest, Permit
from gateway.routing.planned_route import PlannedRoute
from gateway.routing.snapshot import PolicySnapshot
from gateway.timeline import RequestIds, upstream_request_id
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.request import UpstreamRequest

MAX_LOAD_RATIO: Final = 0.5
"""Share of a deployment's permits; with more of them taken, no background request is sent."""
MAX_ANSWER_BYTES: Final = 1024 * 1024

_NOT_SENT: Final = frozenset({"stream", "stream_options"})


class BackgroundRequest(msgspec.Struct, frozen=True):
    """A question for a deployment outside any client's request, and the tenant it is made for."""

    request: ChatRequest
    """A client's request; its transport settings are ignored."""
    snapshot: PolicySnapshot
    planned: PlannedRoute
    tenant: str
    cache_salt: bytes
    """Salt that separates the tenant's prefixes in an engine's KV cache."""
    document: dict[str, Any] | None = None
    """A request of the gateway's own, such as an auditor's; None: the client's."""


class BackgroundRequester:
    """Sender of background requests: no wait for a permit, no retry, and no effect on a deployment's health."""

    __slots__ = ("_ids", "_parser", "_rng")

    def __init__(self, *, rng: random.Random, ids: RequestIds) -> None:
        self._rng = rng
        self._ids = ids
        self._parser = ChatRequestParser()

    def choice(self, question: BackgroundRequest) -> LiveDeployment | None:
        """Return the deployment that the route chooses; None when it can choose none."""
        decision = question.planned.decide(frozenset(), self._rng)
        return None if decision.deployment is None else question.snapshot.deployments.get(decision.deployment)

    async def deployment(self, question: BackgroundRequest, live: LiveDeployment) -> bytes | None:
        """Return the whole answer of this deployment; None when it is busy or fails."""
        lane = min(question.snapshot.lanes.values(), key=lambda lane: lane.rules.weight)
        permit = self._permit(live, AdmissionRequest(lane, question.tenant))
        if permit is None:
            return None
        try:
            return await self._send(question, live, lane)
        except (UpstreamError, InvalidRequest, UpstreamFailed):
            return None  # clients of the deployment find out by themselves what is wrong with it
        finally:
            permit.release()

    def _permit(self, live: LiveDeployment, admission_request: AdmissionRequest) -> Permit | None:
        limiter = live.limiter
        if (
            not live.is_ready
            or not live.health.is_usual
            or limiter.num_waiting
            or limiter.in_flight >= MAX_LOAD_RATIO * limiter.limit
        ):
            return None
        return limiter.try_acquire(admission_request)

    async def _send(self, question: BackgroundRequest, live: LiveDeployment, lane: LiveLane) -> bytes | None:
        headers = (
            (b"x-request-id", upstream_request_id(self._ids.next())),
            (b"x-penstock-cache-salt", question.cache_salt),
        )
        fixed = (
            (b"content-type", b"application/json"),
            (b"accept", b"application/json"),
            (b"x-penstock-priority", lane.upstream_priority),
            *(live.headers.sent if live.dialect is None else live.dialect.headers(live.headers.sent)),
        )
        path, body = self._target(question, live)
        if live.reads_cache_salt:
            body = with_cache_salt(body, None, question.cache_salt)
        request = UpstreamRequest(b"POST", path, headers, without_members(body, _NOT_SENT), fixed)
        async with await live.client.send(request, question.planned.plain_timeouts) as response:
            answer = await response.read(MAX_ANSWER_BYTES)
            if response.status != 200:
                return None
        if live.dialect is not None:
            answer = await asyncio.to_thread(live.dialect.answer, answer)
        return answer if end_of_plain(answer).is_complete else None

    def _target(self, question: BackgroundRequest, live: LiveDeployment) -> tuple[bytes, bytes]:
        """Return the path and the body; raises InvalidRequest if the deployment cannot be given the question."""
        document, dialect = question.document, live.dialect
        model = live.model_with(question.planned.adapter)
        if dialect is None:
            if document is not None:
                return live.chat_path, encoded({**document, "model": model})
            return live.chat_path, question.request.body_for(model)
        request = question.request
        if document is not None:
            request = self._parser.accept({**document, "model": model})
        endpoint = dialect.path(request.operation)
        if endpoint is None:
            raise InvalidRequest(
                f"Deployment '{live.id}' speaks '{dialect.name}', which has no {request.operation.name}."
            )
        return live.path_of(endpoint), dialect.body(request.in_dialect(dialect.name), model)
