"""Similar answers at the admin API: what is promised, what is kept of it, and audits for people to review."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, Protocol
from urllib.parse import parse_qs

import msgspec

from gateway.access.audit_log import AuditLog
from gateway.admin.api.fields import RequestBody, fill
from gateway.admin.api.table import AdminEndpoint, Call
from gateway.admin.handlers.cache import CACHE_PATH
from gateway.api.routes import SmallResponse
from gateway.background.cache_auditor import Auditor
from gateway.cache.audit.audit_book import AuditBook
from gateway.cache.audit.audit_record import AuditRecord
from gateway.cache.audit.error_budget import state_of, tightening_of
from gateway.cache.audit.route_stats import RouteStats, RouteStatsTable, TenantRoute
from gateway.cache.exact.exact_cache import ExactCache
from gateway.cache.semantic.semantic_tier import SemanticTier
from gateway.cache.semantic_stage import MODE
from gateway.errors import InvalidRequest, NotFound
from routing_policies.policy.document import Cache, Policy

AUDITS_PATH: Final = f"{CACHE_PATH}/audits"
_BOUNDS: Final = (0.005, 0.01, 0.02, 0.05)
_SHOWN: Final = 50
_MAX_SHOWN: Final = 500
_FILTERS: Final = ("tenant", "route", "verdict")


class _Review(RequestBody, frozen=True, kw_only=True):
    verdict: Literal["right", "wrong", "unknown"]


class AuditedCache(Protocol):
    """The response cache as its administrators see it: both tiers, and what audits know of the semantic one."""

    books: RouteStatsTable
    audits: AuditBook
    exact: ExactCache
    semantic: SemanticTier
    auditor: Auditor

    @property
    def is_ready(self) -> bool:
        """Whether texts are encoded, so that similar questions can be found."""


class SemanticCacheHandlers:
    """`/admin/api/cache` and `/admin/api/cache/audits`."""

    def __init__(
        self, answers: AuditedCache, audit: AuditLog, *, policy: Callable[[], Policy], wall: Callable[[], float]
    ) -> None:
        """`audit` is the log of what admins did."""
        self._answers = answers
        self._audit = audit
        self._policy = policy
        self._wall = wall

    def entries(self) -> list[AdminEndpoint]:
        """For the table."""
        return [
            AdminEndpoint(method="GET", path=CACHE_PATH, action=self.show),
            AdminEndpoint(method="GET", path=AUDITS_PATH, action=self.audits),
            AdminEndpoint(method="POST", path=AUDITS_PATH + "/{}", action=self.review),
        ]

    async def show(self, call: Call) -> SmallResponse:
        """How much is kept, and for each tenant's route what is dared and what came of it."""
        answers, rules = self._answers, {route.id: route.cache for route in self._policy().routes}
        return SmallResponse.json(
            {
                "entries": answers.exact.num_entries,
                "bytes": answers.exact.num_bytes,
                "index_entries": answers.semantic.num_entries,
                "encoder_ready": answers.is_ready,
                "routes": [
                    _shown_book(whose, book, rules[whose.route])
                    for whose, book in answers.books
                    if whose.route in rules and rules[whose.route].mode == MODE
                ],
                "audits": [_shown(record) for record, _ in zip(answers.audits, range(_SHOWN), strict=False)],
            }
        )

    async def audits(self, call: Call) -> SmallResponse:
        """Audits, newest first, of a tenant, a route or a verdict. Raises InvalidRequest."""
        asked = parse_qs(call.scope.get("query_string", b"").decode("latin-1"))
        wanted = {name: asked[name][0] for name in _FILTERS if name in asked}
        found = self._found(wanted)
        return SmallResponse.json({"audits": [record for record, _ in zip(found, range(_limit(asked)), strict=False)]})

    async def review(self, call: Call) -> SmallResponse:
        """A person's verdict in place of the audit's. Raises InvalidRequest or NotFound."""
        verdict = fill(_Review, call.document).verdict
        known = self._answers.audits.get(call.params[0])
        if known is None:
            raise NotFound("There is no audit of that request. GET /admin/api/cache/audits lists those that are known.")
        await self._audit.record(
            call.who,
            "cache.review",
            known.id,
            detail={"route": known.route, "tenant": known.tenant, "from": known.verdict, "to": verdict},
        )
        reviewed = msgspec.structs.replace(known, verdict=verdict, by="admin", reviewed_by=call.who.name)
        self._answers.auditor.settle(reviewed)
        return SmallResponse.json({"audit": _shown(reviewed)})

    def _found(self, wanted: dict[str, str]) -> Iterator[dict[str, Any]]:
        for record in self._answers.audits:
            if all(getattr(record, name) == value for name, value in wanted.items()):
                yield _shown(record)


def _limit(asked: dict[str, list[str]]) -> int:
    text = asked.get("limit", [str(_SHOWN)])[0]
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= _MAX_SHOWN:
        raise InvalidRequest(f"limit: expected 1 to {_MAX_SHOWN}.", param="limit")
    return int(text)


def _shown_book(whose: TenantRoute, book: RouteStats, rule: Cache) -> dict[str, Any]:
    evidence = book.evidence
    found = evidence.served()
    return {
        "tenant": whose.tenant,
        "route": whose.route,
        "state": state_of(book.level),
        "level": book.level,
        "since": book.since or None,
        "tightening": tightening_of(book.level),
        "floor": min(1.0, book.floor(rule.max_error_ratio)),
        "max_error_ratio": rule.max_error_ratio,
        "audit_ratio": rule.audit_ratio,
        "requests": evidence.num_requests,
        "hits": evidence.num_hits,
        "hit_ratio": evidence.num_hits / evidence.num_requests if evidence.num_requests else 0.0,
        "error": {
            "ratio": found.ratio,
            "low": found.low,
            "high": found.high,
            "audited": found.num_audited,
            "wrong": found.num_wrong,
        },
        "is_recalibrated": book.is_recalibrated,
        "lookup_ms": round(book.order.lookup_s * 1000, 3),
        "similarities": book.similarities.shown(),
        "bounds": [_shown_bound(book, bound) for bound in _BOUNDS],
    }


def _shown_bound(book: RouteStats, bound: float) -> dict[str, Any]:
    """What the evidence says of another bound; a floor above 1 serves nothing."""
    floor = book.predictor.floor(bound)
    found = book.evidence.above(floor)
    return {
        "max_error_ratio": bound,
        "floor": floor,
        "hit_ratio": found.num_hits / found.num_requests if found.num_requests else 0.0,
        "ratio": found.ratio,
        "low": found.low,
        "high": found.high,
        "audited": found.num_audited,
        "wrong": found.num_wrong,
    }


def _shown(record: AuditRecord) -> dict[str, Any]:
    """Texts only where the route's policy has them kept."""
    texts = record.texts
    return {
        "id": record.id,
        "at": record.at,
        "tenant": record.tenant,
        "route": record.route,
        "entry_id": record.entry_id,
        "verdict": record.verdict,
        "by": record.by,
        "reviewed_by": record.reviewed_by,
        "was_served": record.was_served,
        "weight": record.weight,
        "similarity": record.similarity,
        "runner_up": record.runner_up,
        "chance": record.chance,
        "answer_similarity": record.answer_similarity,
        "differences": list(record.differences),
        "texts": None if texts is None else msgspec.to_builtins(texts),
    }
