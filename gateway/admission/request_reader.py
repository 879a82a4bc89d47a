"""RequestReader: reads and parses a request's body; threads do the slow part of a long one."""

from __future__ import annotations

from typing import Final

from gateway.admission.context_check import refuse_hopeless
from gateway.cache.exact.fingerprint import outline_of
from gateway.chat.headers import ChatHead
from gateway.chat.request import ChatRequest, ChatRequestParser, require_json
from gateway.chat.strict_json import LONG_BYTES, is_long
from gateway.chat.strictness import refuse_addressed_images, refuse_unknown_fields
from gateway.dialects.client_dialect import StatefulExchange, StateNeeded
from gateway.errors import RequestTooLarge, Shed
from gateway.http.asgi import BodyTooLarge, Receive, read_body
from gateway.limits.body_budget import READ_RATIO, BodyBudget, parsed_bytes
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.util.workers import Workers
from routing_policies.policy.document import Route

MAX_BODY_BYTES: Final = 16 * 1024 * 1024


class RequestReader:
    """Reader and parser of requests, within the memory that bodies may take."""

    __slots__ = ("_bodies", "_max_body_bytes", "_parser", "_workers")

    def __init__(
        self, parser: ChatRequestParser, bodies: BodyBudget, workers: Workers, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._parser = parser
        self._bodies = bodies
        self._workers = workers
        self._max_body_bytes = max_body_bytes

    async def read(self, ctx: RequestContext, head: ChatHead, receive: Receive) -> ChatRequest:
        """Return the request; raises RejectedRequest, or Shed where there is no memory for it."""
        record = ctx.record
        require_json(head.content_type, head.content_encoding)
        held = ctx.held = self._bodies.open(record.tenant)
        try:
            if head.content_length > LONG_BYTES:
                await held.cover(READ_RATIO * head.content_length)
            body = await read_body(receive, self._max_body_bytes, ctx.channel, held)
            is_slow = len(body) > LONG_BYTES
            num_bytes = await self._workers.run(parsed_bytes, body) if is_slow else parsed_bytes(body)
            if ctx.exchange is not None:
                num_bytes *= 2  # the request of the client and its translation
            if not held.try_cover(num_bytes):
                await held.cover(num_bytes)
        except BodyTooLarge as error:
            raise RequestTooLarge(f"{error} Send a smaller one.") from None
        except (RequestTooLarge, Shed):
            ctx.close_after()  # the rest of the client's body stays unread
            raise
        record.bytes_in = len(body)
        request = await self._parsed(ctx, body)
        record.model = request.model
        record.stream = request.stream
        return request

    async def _parsed(self, ctx: RequestContext, body: bytes) -> ChatRequest:
        """Parse the body in the client's API, with the earlier answers that it refers to."""
        exchange = ctx.exchange
        parse = self._parser.parse if exchange is None else exchange.parse
        if not isinstance(exchange, StatefulExchange):
            return await self._workers.run(parse, body) if is_long(body) else parse(body)
        exchange.enter(ctx.record.tenant, ctx.snapshot.policy)
        try:
            return await self._workers.run(parse, body) if is_long(body) else parse(body)
        except StateNeeded as needed:
            await exchange.recall(needed)
        return await self._workers.run(parse, body)  # whatever its size: what it refers to may be long

    async def outline(self, request: ChatRequest) -> None:
        """Prepare what the cache and recordings read of a long request."""
        if len(request.raw) > LONG_BYTES:
            await self._workers.run(outline_of, request)

    async def hold_route_rules(self, request: ChatRequest, route: Route) -> None:
        """Raise InvalidRequest for fields or images that the route does not take."""
        rules = (
            *((refuse_addressed_images,) if route.images == "inline_only" else ()),
            *((refuse_unknown_fields,) if route.unknown_fields == "reject" else ()),
        )
        for hold in rules:
            if len(request.raw) > LONG_BYTES:
                await self._workers.run(hold, request)
            else:
                hold(request)

    async def refuse_hopeless(self, request: ChatRequest, planned: PlannedRoute) -> None:
        """Raise InvalidRequest for a prompt that fits none of the route's deployments."""
        if len(request.raw) > LONG_BYTES:
            await self._workers.run(refuse_hopeless, request, planned.context_tokens)
        else:
            refuse_hopeless(request, planned.context_tokens)
