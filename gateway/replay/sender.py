"""ReplaySender: one request to one deployment beside clients' requests, past cache and routing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.chat.json_members import without_members
from gateway.chat.operation import CHAT
from gateway.chat.request import ChatRequest
from gateway.completion.answer_end import end_of_plain
from gateway.deployments.live import LiveDeployment
from gateway.errors import GatewayError
from gateway.http.asgi import Header
from gateway.limits.lane import LiveLane
from gateway.limits.permit import AdmissionRequest
from gateway.replay.answer_text import AnswerText
from gateway.routing.snapshot import PolicySnapshot
from gateway.telemetry.records.answer_record import MAX_TEXT_BYTES
from gateway.telemetry.records.model_state import STATE_REQUEST, ModelState, stated_in, with_fingerprint
from gateway.timeline import RequestIds, upstream_request_id
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest

TIMEOUTS: Final = ExchangeTimeouts(connect_s=2.0, first_byte_s=120.0, total_s=120.0)
"""Time limits of one replayed request: a plain answer comes whole, and an operator waits for it."""
CACHE_SALT: Final = b"penstock-replay"
"""Salt of the engine's prefix cache: replays share nothing with a tenant's prefixes."""
_NOT_SENT: Final = frozenset({"stream", "stream_options"})


class CannotReplay(Exception):
    """A deployment gave no answer; the message says why."""


class ReplayedAnswer(msgspec.Struct, frozen=True):
    """A deployment's new answer."""

    text: AnswerText
    state: ModelState


class ReplaySender:
    """Sender of replays: each takes a permit in the lane with the least weight; nothing is retried or stored."""

    def __init__(self, ids: RequestIds) -> None:
        self._ids = ids

    async def send(
        self, snapshot: PolicySnapshot, live: LiveDeployment, request: ChatRequest, adapter: str | None
    ) -> ReplayedAnswer:
        """Return the deployment's plain answer to the request. Raises CannotReplay."""
        lane = min(snapshot.lanes.values(), key=lambda lane: lane.rules.weight)
        wanted = AdmissionRequest(lane, "")
        try:
            permit = live.limiter.try_acquire(wanted) or await live.limiter.acquire(wanted)
            try:
                return await self._exchange(live, request, adapter, lane)
            finally:
                permit.release()
        except (GatewayError, UpstreamError, ValueError) as error:
            why = error.message if isinstance(error, GatewayError) else str(error)
            raise CannotReplay(f"deployment '{live.id}' gave no answer: {why}") from None

    async def _exchange(
        self, live: LiveDeployment, request: ChatRequest, adapter: str | None, lane: LiveLane
    ) -> ReplayedAnswer:
        model, dialect = live.model if adapter is None else live.model_with(adapter), live.dialect
        headers = [(b"x-request-id", upstream_request_id(self._ids.next())), (b"x-penstock-cache-salt", CACHE_SALT)]
        own: Sequence[Header] = live.headers.sent
        if dialect is None:
            path, body = live.chat_path, request.body_for(model)
        else:
            endpoint = dialect.path(CHAT)
            assert endpoint is not None, "every dialect has conversations"
            path, body = live.path_of(endpoint), dialect.body(request.in_dialect(dialect.name), model)
            headers += dialect.request_headers(request)
            own = dialect.headers(own)
        fixed = (
            (b"content-type", b"application/json"),
            (b"accept", b"application/json"),
            (b"x-penstock-priority", lane.upstream_priority),
            STATE_REQUEST,
            *own,
        )
        message = UpstreamRequest(b"POST", path, headers, without_members(body, _NOT_SENT), fixed)
        async with await live.client.send(message, TIMEOUTS) as response:
            answer = await response.read(MAX_TEXT_BYTES)
            if response.status != 200:
                raise ValueError(f"it answered {response.status}")
            state = stated_in(response.headers)
        if dialect is not None:
            answer = await asyncio.to_thread(dialect.answer, answer)
        if not end_of_plain(answer).is_complete:
            raise ValueError("its answer is not whole")
        return ReplayedAnswer(await asyncio.to_thread(AnswerText.of, answer), with_fingerprint(state, answer))
