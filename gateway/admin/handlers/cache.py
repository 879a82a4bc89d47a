"""The response cache at the admin API: its entries, the error bounds of the semantic tier, audits, and purges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
from starlette.responses import Response

from gateway.access.audit_log import AuditLog
from gateway.admin.api.fields import RequestBody
from gateway.admin.api.request import AdminRequest, serves
from gateway.api.application import ApiResponse
from gateway.background.cache_auditor import Auditor
from gateway.cache.audit.audit_record import AuditRecord
from gateway.cache.audit.audit_registry import AuditRegistry
from gateway.cache.audit.error_budget import budget_state, tightening_of
from gateway.cache.audit.evidence import Estimate
from gateway.cache.audit.route_stats import RouteStats, RouteStatsTable, TenantRoute
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.exact_cache import ExactCache
from gateway.cache.exact.exact_tier import Selection
from gateway.cache.semantic.late_index import LateIndex
from gateway.cache.semantic.semantic_tier import SemanticTier
from gateway.cache.semantic_stage import MODE
from gateway.errors import InvalidRequest, NotFound
from routing_policies.policy.document import Cache, Policy

CACHE_PATH: Final = "/admin/api/cache"
AUDITS_PATH: Final = f"{CACHE_PATH}/audits"
_BOUNDS: Final = (0.005, 0.01, 0.02, 0.05)
_SHOWN: Final = 50
_MAX_SHOWN: Final = 500
_MAX_PURGED_SHOWN: Final = 100
_FILTERS: Final = ("tenant", "route", "verdict")

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Purge(RequestBody, frozen=True, kw_only=True):
    """The entries to remove: at least one condition, and an entry must meet all that are given."""

    id: _Name | None = None
    tenant: _Name | None = None
    route: _Name | None = None
    text: _Name | None = None
    until: Annotated[float, msgspec.Meta(ge=0.0)] | None = None
    """Instant after which stored entries are not covered; a dry run answers its own, for the purge that follows it."""
    dry_run: bool = True


class _Review(RequestBody, frozen=True, kw_only=True):
    verdict: Literal["right", "wrong", "unknown"]


class RecallCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The recall notices of this gateway since its start."""

    is_on: bool
    notices: int
    """Notices recorded."""
    delivered: int
    """Webhooks that a receiver took."""
    failed: int
    """Attempts that are repeated."""
    given_up: int


class AuditedCache(Protocol):
    """The response cache for its administrators: both tiers, and the audits of the semantic one."""

    route_stats: RouteStatsTable
    audits: AuditRegistry
    exact: ExactCache
    semantic: SemanticTier
    late: LateIndex
    auditor: Auditor

    @property
    def is_ready(self) -> bool:
        """Return whether texts are encoded, so that similar questions can be found."""


class CacheHandlers:
    """`/admin/api/cache` and the paths below it."""

    def __init__(
        self,
        answers: AuditedCache,
        audit: AuditLog,
        *,
        policy: Callable[[], Policy],
        recalls: Callable[[], RecallCounts],
        wall: Callable[[], float],
    ) -> None:
        """Set up the handlers; `audit` is the log of admins' actions."""
        self._recalls = recalls
        self._answers = answers
        self._audit = audit
        self._policy = policy
        self._wall = wall

    @serves(CACHE_PATH)
    async def show(self, request: AdminRequest) -> Response:
        """Show the size of the cache, and for each tenant's route its threshold and its results."""
        answers, rules = self._answers, {route.id: route.cache for route in self._policy().routes}
        return ApiResponse(
            {
                "entries": answers.exact.num_entries,
                "bytes": answers.exact.num_bytes,
                "index_entries": answers.semantic.num_entries,
                "index_waiting": answers.late.num_waiting,
                "encoder_ready": answers.is_ready,
                "routes": [
                    _shown_stats(whose, stats, rules[whose.route])
                    for whose, stats in answers.route_stats
                    if whose.route in rules and rules[whose.route].mode == MODE
                ],
                "recalls": msgspec.to_builtins(self._recalls()),
                "audits": [_shown(record) for record, _ in zip(answers.audits, range(_SHOWN), strict=False)],
            }
        )

    @serves(AUDITS_PATH)
    async def audits(self, request: AdminRequest) -> Response:
        """List the audits of a tenant, a route or a verdict, newest first. Raises InvalidRequest."""
        wanted = {name: value for name in _FILTERS if (value := request.text(name)) is not None}
        limit = request.integer("limit", _SHOWN, least=1, most=_MAX_SHOWN)
        return ApiResponse({"audits": [record for record, _ in zip(self._found(wanted), range(limit), strict=False)]})

    @serves(AUDITS_PATH + "/{id}", "POST")
    async def review(self, request: AdminRequest) -> Response:
        """Put a person's verdict in place of the audit's. Raises InvalidRequest or NotFound."""
        verdict = request.fill(_Review).verdict
        known = self._answers.audits.get(request.path_params["id"])
        if known is None:
            raise NotFound("There is no audit of that request. GET /admin/api/cache/audits lists those that are known.")
        await self._audit.record(
            request.who,
            "cache.review",
            known.id,
            detail={"route": known.route, "tenant": known.tenant, "from": known.verdict, "to": verdict},
        )
        reviewed = msgspec.structs.replace(known, verdict=verdict, by="admin", reviewed_by=request.who.name)
        self._answers.auditor.settle(reviewed)
        return ApiResponse({"audit": _shown(reviewed)})

    @serves(f"{CACHE_PATH}/purge", "POST")
    async def purge(self, request: AdminRequest) -> Response:
        """List the entries that meet the conditions; remove them when `dry_run` is false.

        Raises InvalidRequest.
        """
        purge_order = request.fill(Purge)
        selection = Selection(
            id=purge_order.id,
            tenant=purge_order.tenant,
            route=purge_order.route,
            text=purge_order.text,
            until=purge_order.until,
        )
        if msgspec.structs.replace(selection, until=None) == Selection():
            raise InvalidRequest("Name at least one of id, tenant, route, text; nothing was removed.")
        if not purge_order.dry_run:
            detail = msgspec.to_builtins(selection) | {"text": selection.text is not None}  # the log keeps no question
            await self._audit.record(request.who, "cache.purge", detail=detail)
        exact, now = self._answers.exact, self._wall()
        covered = exact.purge(selection, dry_run=True)
        listed = [_shown_entry(entry, exact.tier.num_hits(entry.exact)) for entry in covered[:_MAX_PURGED_SHOWN]]
        if not purge_order.dry_run:
            covered = exact.purge(selection, dry_run=False)
        body = {"dry_run": purge_order.dry_run, "covered": len(covered), "until": now, "entries": listed}
        return ApiResponse(body)

    def _found(self, wanted: dict[str, str]) -> Iterator[dict[str, Any]]:
        for record in self._answers.audits:
            if all(getattr(record, name) == value for name, value in wanted.items()):
                yield _shown(record)


def _shown_stats(whose: TenantRoute, stats: RouteStats, rule: Cache) -> dict[str, Any]:
    evidence = stats.evidence
    found = evidence.served()
    return {
        "tenant": whose.tenant,
        "route": whose.route,
        "state": budget_state(stats.level),
        "level": stats.level,
        "since": stats.since or None,
        "tightening": tightening_of(stats.level),
        "threshold": min(1.0, stats.threshold(rule.max_error_ratio)),
        "max_error_ratio": rule.max_error_ratio,
        "audit_ratio": rule.audit_ratio,
        "requests": evidence.num_requests,
        "hits": evidence.num_hits,
        "hit_ratio": evidence.num_hits / evidence.num_requests if evidence.num_requests else 0.0,
        "error": _shown_error(found),
        "doubt_factor": stats.doubt.factor,
        "is_recalibrated": stats.is_recalibrated,
        "lookup_ms": round(stats.order.lookup_s * 1000, 3),
        "similarities": stats.similarities.shown(),
        "bounds": [_shown_bound(stats, bound) for bound in _BOUNDS],
    }


def _shown_bound(stats: RouteStats, bound: float) -> dict[str, Any]:
    """Return the threshold of an error bound, its hits among all recent lookups, and the audits above it.

    A threshold above 1 serves nothing; an error without audits is unknown.
    """
    threshold = stats.threshold(bound, 0)
    found = stats.evidence.above(threshold)
    return {
        "max_error_ratio": bound,
        "threshold": threshold,
        "hit_ratio": stats.usage.hit_ratio(threshold),
        **_shown_error(found),
    }


def _shown_error(found: Estimate) -> dict[str, Any]:
    is_known = found.num_audited > 0
    return {
        "ratio": found.ratio if is_known else None,
        "low": found.low if is_known else None,
        "high": found.high if is_known else None,
        "audited": found.num_audited,
        "wrong": found.num_wrong,
    }


def _shown(record: AuditRecord) -> dict[str, Any]:
    """Show the texts only where the route's policy stores them."""
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
        "match_probability": record.match_probability,
        "answer_similarity": record.answer_similarity,
        "differences": list(record.differences),
        "texts": None if texts is None else msgspec.to_builtins(texts),
    }


def _shown_entry(entry: CacheEntry, num_hits: int) -> dict[str, Any]:
    """Describe an entry without its answer and question, which are the tenant's."""
    return {
        "id": entry.id,
        "tenant": entry.tenant,
        "route": entry.route,
        "deployment": entry.deployment,
        "created_at": entry.created_at,
        "expires_at": entry.expires_at,
        "hits": num_hits,
        "bytes": entry.num_bytes,
    }
