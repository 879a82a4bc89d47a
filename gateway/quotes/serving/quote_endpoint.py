"""`POST /v1/quote`: what a chat request would get now, and a token that reserves it for a few seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs

import msgspec

from gateway.admission.admitter import Admitter
from gateway.admission.context_check import may_be_hopeless
from gateway.admission.gate import AdmissionStage
from gateway.admission.quota_stage import QuotaStage
from gateway.admission.request_reader import RequestReader
from gateway.chat.headers import ChatHead
from gateway.errors import GatewayError, InternalError, InvalidRequest, MethodNotAllowed, NotFound, Shed
from gateway.http.asgi import ClientGone, Header, Receive, Scope, Send, is_draining, until_gone
from gateway.quotes.serving.quoter import Quoter, RefusedQuote, ShownQuote
from gateway.request_context import RequestContext
from gateway.routing.snapshot import PolicySnapshot
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.records.record import RequestRecord
from gateway.timeline import Clock, RequestIds
from gateway.trimming.trim_stage import TrimStage
from routing_policies.estimation.coverage import LEAST_COVERAGE, MOST_COVERAGE
from routing_policies.policy.document import Quotes

QUOTE_PATH: Final = "/v1/quote"
MAX_FIELDS: Final = 16
"""Largest number of fields of a query."""
_HEADERS: Final[list[Header]] = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
_NO_HEADERS: Final[dict[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedStages:
    """The stages that a quote's request passes as a chat request does, up to the choice of a deployment."""

    admitter: Admitter
    reader: RequestReader
    trims: TrimStage
    quotas: QuotaStage
    admission: AdmissionStage


class QuoteEndpoint:
    """The ASGI application of the endpoint. It takes the body of a chat request, and generates nothing."""

    path = QUOTE_PATH

    def __init__(
        self,
        policy: Callable[[], PolicySnapshot],
        stages: QuotedStages,
        quoter: Quoter,
        *,
        ids: RequestIds,
        log: LogWriter,
        clock: Clock,
    ) -> None:
        self._policy = policy
        self._stages = stages
        self._quoter = quoter
        self._ids = ids
        self._log = log
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one quote; it is in no record of requests."""
        record = RequestRecord(self._ids.next(), self._clock())
        ctx = RequestContext(scope, send, record, self._policy(), self._clock)
        record.policy = ctx.snapshot.revision
        try:
            async with until_gone(scope, receive) as client:
                quote = await self._quote(ctx, scope, client.receive)
            await ctx.answer(200, [*_HEADERS, *_named(ctx)], msgspec.json.encode(quote))
        except ClientGone:
            return
        except GatewayError as error:
            await ctx.fail(error)
        except Exception as error:  # our own fault, whatever it is: the client gets an id, the log the cause
            self._log.failure("endpoint_failed", error, request_id=record.request_id, path=QUOTE_PATH)
            await ctx.fail(InternalError(record.request_id))
        finally:
            ctx.end_lookups()
            if ctx.reservation is not None:
                ctx.reservation.cancel()
            if ctx.held is not None:
                ctx.held.release()

    async def _quote(self, ctx: RequestContext, scope: Scope, receive: Receive) -> ShownQuote | RefusedQuote:
        """Return the quote; the checks and their errors are those of a chat request.

        Raises:
            GatewayError: The request is wrong, over a limit of its tenant, or this gateway takes none.
        """
        if scope["method"] != "POST":
            raise MethodNotAllowed(scope["method"], ["POST"])
        stages, record = self._stages, ctx.record
        head = ChatHead(scope["headers"])
        client = scope.get("client")
        caller = stages.admitter.identify(ctx, head, client[0] if client else None)
        request = await stages.reader.read(ctx, head, receive)
        trial = ctx.snapshot.trial
        if trial is not None and trial.takes(caller.tenant, request):
            _, caller = ctx.enter(trial, caller)
        snapshot, rules = ctx.snapshot, _rules_of(ctx.snapshot)
        coverage = _coverage_of(scope, rules)
        admission = stages.admitter.admit(
            snapshot, head, caller, received_at=record.timeline.started_at, is_draining=is_draining(scope)
        )
        record.lane = admission.lane.id
        headers = head.all() if snapshot.router.reads_headers else _NO_HEADERS
        planned = snapshot.router.match(request.model, caller.tenant, headers, request)
        record.route = planned.route.id
        if planned.has_field_rules:
            await stages.reader.hold_route_rules(request, planned.route)
        trimmed = request
        ctx.keeps_whole = head.turns_off_trimming(is_allowed=planned.route.trim.client_may_turn_off)
        if planned.route.trim.strategies and not ctx.keeps_whole:
            trimmed = await stages.trims.trim(ctx, request, planned.route.trim)
        if planned.context_tokens is not None and may_be_hopeless(trimmed, planned.context_tokens):
            await stages.reader.refuse_hopeless(trimmed, planned)
        if (quota := stages.quotas.by_tenant.get(caller.tenant)) is not None:
            await stages.quotas.reserve(ctx, quota, trimmed, planned)  # cancelled at the end, so nothing is used
        try:
            admitted = await stages.admission.admit(ctx, trimmed, head, admission, planned)
            if admitted.hit is not None and admitted.hit.answer is not None:
                return self._quoter.from_stale_cache(ctx, request, coverage)
            return await self._quoter.quote(ctx, request, admitted, planned, rules, coverage)
        except Shed as error:
            return self._quoter.refused(ctx, request, error)


def _named(ctx: RequestContext) -> list[Header]:
    return [
        (b"x-request-id", ctx.record.request_id.encode("ascii")),
        (b"x-penstock-policy", ctx.record.policy.encode("ascii")),
    ]


def _rules_of(snapshot: PolicySnapshot) -> Quotes:
    """Return the policy's rules for quotes. Raises NotFound where it has none."""
    if snapshot.policy.quotes is None:
        raise NotFound("This gateway gives no quotes: its policy has no `quotes`.")
    return snapshot.policy.quotes


def _coverage_of(scope: Scope, rules: Quotes) -> float:
    """Return the coverage that the query states, else the policy's. Raises InvalidRequest."""
    query: bytes = scope.get("query_string", b"")
    try:
        fields = parse_qs(query.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise InvalidRequest(
            f"The query has more than {MAX_FIELDS} fields; send `coverage` alone.", param="coverage"
        ) from None
    given = fields.get("coverage")
    if given is None:
        return rules.coverage
    try:
        coverage = round(float(given[-1]), 2)
    except ValueError:
        coverage = 0.0
    if not LEAST_COVERAGE <= coverage <= MOST_COVERAGE:
        raise InvalidRequest(
            f"`coverage` must be a number between {LEAST_COVERAGE} and {MOST_COVERAGE}.", param="coverage"
        )
    return coverage
