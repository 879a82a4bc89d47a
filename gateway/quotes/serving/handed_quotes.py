"""Quotes between the processes of a machine: one gives a reserved permit up, and the one with the request takes it.

`POST /quotes` on a process's socket takes an open quote out of it. The answer begins with the form in which the quote's
request was admitted, and goes on with one byte once the permit is granted. The permit stays counted there until the
other process has counted it and closes the connection. So no other request gets it in between, and no end of either
process leaves it behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.deployments.live import LiveDeployment
from gateway.http.asgi import ASGIApp, BodyTooLarge, ClientGone, Receive, Scope, Send, read_body, respond, until_gone
from gateway.limits.lane import LiveLane
from gateway.limits.permit import NEVER, AdmissionRequest, Permit
from gateway.quotes.serving.open_quotes import OpenQuote, OpenQuotes
from gateway.timeline import Clock
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.errors import UpstreamError
from gateway.upstreams.http1.request import ExchangeTimeouts, UpstreamRequest
from gateway.upstreams.http1.response import UpstreamResponse
from routing_policies.decision import Cause, Decision

QUOTES_PATH: Final = "/quotes"
_MAX_ORDER_BYTES: Final = 64 * 1024
_LENGTH_BYTES: Final = 4
_GRANTED: Final = b"g"
_REFUSED: Final = b"r"
_TIMEOUTS: Final = ExchangeTimeouts(connect_s=0.5, first_byte_s=1.0)
"""Time limits of an exchange; the wait for a permit ends with the request's own."""


class QuoteOrder(msgspec.Struct, frozen=True, array_like=True):
    """A quote that another process asks for, and where its request is."""

    id: str
    policy: str
    route: str


class HandedForm(msgspec.Struct, frozen=True, array_like=True):
    """The form in which a quote's request was admitted, without anything that only one process knows."""

    deployment: str
    chosen: str | None
    """Deployment of the routing decision; None where all were full, so that the request waits."""
    selection: str
    """Selection policy of the decision."""
    cause: Cause
    lane: str
    tokens: int
    is_retry: bool
    service_s: float
    prompt_tokens: int
    first_token_s: float
    body: bytes | None
    """Body after the cuts of the degradation ladder; None without cuts."""
    avoid: tuple[str, ...]
    stand_in: str | None
    """Route that supplies the deployment instead of the request's own."""
    degraded: tuple[str, ...]
    trimmed: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, quote: OpenQuote) -> HandedForm:
        """Return the form of an open quote that this process gave."""
        wanted, decision = quote.admission_request, quote.reserved.decision
        return cls(
            quote.reserved.live.id,
            decision.deployment,
            decision.policy,
            decision.cause,
            wanted.lane.id,
            wanted.tokens,
            wanted.is_retry,
            wanted.service_s,
            wanted.prompt_tokens,
            wanted.first_token_s,
            None if quote.request is None else quote.request.raw,
            tuple(quote.avoid),
            None if quote.stand_in is None else quote.stand_in.route.id,
            quote.degraded,
            quote.trimmed,
        )

    @property
    def decision(self) -> Decision:
        """Return the routing decision, without the scores of the candidates."""
        return Decision(self.chosen, self.selection, {}, cause=self.cause)

    def admission_request(self, lane: LiveLane, tenant: str) -> AdmissionRequest:
        """Return the admission request of the quote's request in a lane of this process."""
        return AdmissionRequest(
            lane,
            tenant,
            self.tokens,
            is_retry=self.is_retry,
            service_s=self.service_s,
            prompt_tokens=self.prompt_tokens,
            first_token_s=self.first_token_s,
        )


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_order: Final = msgspec.msgpack.Decoder(QuoteOrder).decode
_decode_form: Final = msgspec.msgpack.Decoder(HandedForm).decode


class HandedQuotesApplication:
    """ASGI application of a process's socket: quotes that it gives up, and `others` for every other path."""

    def __init__(self, open_quotes: OpenQuotes, others: ASGIApp, *, clock: Clock) -> None:
        self._open_quotes = open_quotes
        self._others = others
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["path"] != QUOTES_PATH:
            await self._others(scope, receive, send)
            return
        try:
            async with until_gone(scope, receive) as client:
                order = _decode_order(await read_body(client.receive, _MAX_ORDER_BYTES))
                quote = self._open_quotes.take(order.id)
                if quote is None:
                    await respond(send, 404, [])
                    return
                await self._hand_over(quote, order, send)
        except (BodyTooLarge, msgspec.DecodeError):
            await respond(send, 400, [])
        except ClientGone:
            return

    async def _hand_over(self, quote: OpenQuote, order: QuoteOrder, send: Send) -> None:
        """Hold the permit until the other process has counted it, or does not want it any more."""
        permit: Permit | None = None
        try:
            if (quote.policy, quote.route) != (order.policy, order.route):
                await respond(send, 404, [])
                return
            form = _encode(HandedForm.of(quote))
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send(_piece(len(form).to_bytes(_LENGTH_BYTES, "big") + form))
            permit = await quote.reserved.take(self._clock)
            await send(_piece(_REFUSED if permit is None else _GRANTED, is_last=permit is None))
            if permit is not None:
                await asyncio.get_running_loop().create_future()  # until the other process closes the connection
        finally:
            if permit is not None:
                permit.cancel()
            quote.reserved.release()


def _piece(content: bytes, *, is_last: bool = False) -> dict[str, object]:
    return {"type": "http.response.body", "body": content, "more_body": not is_last}


class HandedPermit:
    """The reserved permit of another process; it ends with `take` or `release`, whichever comes first."""

    __slots__ = ("_admission_request", "_answer", "decision", "live")

    def __init__(
        self, live: LiveDeployment, decision: Decision, admission_request: AdmissionRequest, answer: HandedAnswer
    ) -> None:
        """Prepare to take it over.

        Args:
            live: Deployment that the quote names.
            decision: Routing decision that chose it.
            admission_request: Work that is reserved.
            answer: The other process's answer.
        """
        self.live = live
        self.decision = decision
        self._admission_request = admission_request
        self._answer: HandedAnswer | None = answer

    @property
    def is_fit(self) -> bool:
        """Return whether the deployment can still serve the request."""
        return self.live.is_ready and self.live.health.is_fit

    async def take(self, clock: Clock, start_by: float = NEVER) -> Permit | None:
        """Return the permit, after the rest of its wait.

        None if it was taken before, the queue refused it, the other process has ended, or it did not come by the
        monotonic instant `start_by`.
        """
        answer, self._answer = self._answer, None
        if answer is None:
            return None
        try:
            async with asyncio.timeout(None if start_by == NEVER else max(start_by - clock(), 0.0)):
                if not await answer.is_granted():
                    return None
            return self.live.limiter.adopt(self._admission_request)
        except (UpstreamError, TimeoutError):
            return None
        finally:
            answer.close()

    def release(self) -> None:
        """Let the other process return the permit, or leave the queue. Idempotent."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()


class HandedAnswer:
    """The answer of the process that holds a permit, as it comes."""

    def __init__(self, response: UpstreamResponse) -> None:
        self._response = response
        self._pieces = response.chunks()
        self._unread = bytearray()

    async def read_form(self) -> HandedForm:
        """Read the beginning. Raises UpstreamError or msgspec.DecodeError."""
        size = int.from_bytes(await self._next(_LENGTH_BYTES), "big")
        return _decode_form(await self._next(size))

    async def is_granted(self) -> bool:
        """Wait for the permit; return False where the queue refused it. Raises UpstreamError."""
        return await self._next(1) == _GRANTED

    def close(self) -> None:
        """Close the connection, by which the other process sees that its permit is taken or not wanted."""
        self._response.close()

    async def _next(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end of the answer."""
        while len(self._unread) < size and (piece := await anext(self._pieces, b"")):
            self._unread += piece
        found = bytes(self._unread[:size])
        del self._unread[:size]
        return found


def holder_of(life: str, column: int) -> str:
    """Return the name of a process in its tokens, by which the others of its machine find it."""
    return f"{life}@{column}"


def _column_of(holder: str) -> int:
    """Return the column in a name of `holder_of`; -1 for the only process of a gateway."""
    column = holder.rpartition("@")[2]
    return int(column) if column.isascii() and column.isdigit() else -1


class QuotesElsewhere:
    """The quotes that other processes of this machine hold."""

    def __init__(self, clients: Mapping[int, UpstreamClient]) -> None:
        """Create it with a client of each other process's socket, by column."""
        self._clients = clients

    async def fetch(self, holder: str, order: QuoteOrder) -> tuple[HandedForm, HandedAnswer] | None:
        """Return the form of a quote, and the answer that its permit comes with; None where nobody here holds it."""
        client = self._clients.get(_column_of(holder))
        if client is None:
            return None
        try:
            response = await client.send(UpstreamRequest(b"POST", QUOTES_PATH.encode(), (), _encode(order)), _TIMEOUTS)
        except UpstreamError:  # it has ended: its permits are free
            return None
        try:
            if response.status == 200:
                answer = HandedAnswer(response)
                return await answer.read_form(), answer
        except (UpstreamError, msgspec.DecodeError):  # it ended meanwhile, or is of another version
            response.close()
            return None
        except BaseException:  # cancellation too: nobody would close it
            response.close()
            raise
        response.close()
        return None

    async def aclose(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.aclose()
