"""Auditor: compares similar answers of the cache with a deployment's answer to the same question, in the background.

A share of the served ones is sent again. For those that audits excluded from serving, the deployment's answer
exists anyway. Nothing is sent under load: such audits count as skipped.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from gateway.admission.guard import OverloadGuard
from gateway.background.background_request import BackgroundRequest, BackgroundRequester
from gateway.background.task_group import BackgroundTasks
from gateway.cache.audit.audit_choice import AuditChoice
from gateway.cache.audit.audit_record import AuditRecord, By, Texts, clipped
from gateway.cache.audit.audit_registry import AuditRegistry
from gateway.cache.audit.comparison import (
    AnswerPair,
    Verdict,
    auditor_document,
    auditor_verdict,
    text_of,
)
from gateway.cache.audit.route_stats import TenantRoute
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.semantic.semantic_lookup import SemanticLookup
from gateway.cache.semantic.semantic_tier import Embeds, SemanticResult
from gateway.cache.similarity.differences import Differences, differences
from gateway.chat.request import ChatRequest
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.util.fair_bounded_dict import FairRecent
from routing_policies.policy.document import Cache

MAX_RUNNING: Final = 4
MAX_COMPARED_CHARS: Final = 10_000
"""Characters of an answer that rules compare, within some milliseconds; a longer one is right where it is equal."""
MAX_SERVED: Final = 10_000
"""Number of served similar answers that feedback may still name."""

OnPair = Callable[[BackgroundRequest, tuple[str, str], bool], Awaitable[None]]
"""Callback with two deployments that answered one question, and whether their answers agreed."""

OnServed = Callable[[str, SemanticLookup, CacheEntry], None]
"""Callback with a request, its lookup, and the entry that it is served; it neither waits nor fails."""

AuditEnd = Verdict | Literal["skipped"]
"""End of an audit; a metric label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSink:
    """Callbacks that receive the results of audits."""

    record: Callable[[AuditRecord], None]
    """Stores a record, and sends it to other processes."""
    count: Callable[[AuditEnd], None]


class _Case(msgspec.Struct, frozen=True):
    """A similar answer, and its origin."""

    request_id: str
    whose: TenantRoute
    rule: Cache
    prompt: str
    finding: SemanticResult
    entry: CacheEntry
    weight: float
    was_served: bool
    question: BackgroundRequest | None = None
    """The request, for a deployment or an auditor; None where no audit was drawn, because bodies are large."""


class Auditor:
    """Auditor of similar answers; it never waits and never fails, and `aclose` ends what runs."""

    def __init__(
        self,
        *,
        requester: BackgroundRequester,
        embedder: Embeds,
        stats: AuditRegistry,
        guard: OverloadGuard,
        sink: AuditSink,
        tasks: BackgroundTasks,
        rng: random.Random,
        wall: Callable[[], float],
    ) -> None:
        """Create an auditor; `tasks` must be its own, because it counts them."""
        self.on_served: OnServed = lambda request_id, semantic_lookup, entry: None
        """Callback for every similar answer that is served."""
        self.on_pair: OnPair | None = None
        """Callback for the agreement of both models of a predicted pair; None: the second model gets no request."""
        self._request = requester
        self._embedder = embedder
        self._audits = stats
        self._guard = guard
        self._sink = sink
        self._tasks = tasks
        self._rng = rng
        self._wall = wall
        self._served: FairRecent[str, _Case] = FairRecent(MAX_SERVED)
        self._choice = AuditChoice()

    def served(
        self, ctx: RequestContext, request: ChatRequest, planned: PlannedRoute, semantic_lookup: SemanticLookup
    ) -> None:
        """Draw whether a served similar answer is audited."""
        finding = semantic_lookup.finding
        assert finding is not None, "what is served was found"
        assert finding.entry is not None, "and kept"
        pair = semantic_lookup.key.exact, finding.entry.exact
        rule, tenant = semantic_lookup.wanted.rule, semantic_lookup.whose.tenant
        probability = self._choice.of_served(
            pair, finding.match_probability, rule.audit_ratio, semantic_lookup.stats, tenant
        )
        case = _case(ctx.record.request_id, semantic_lookup, finding.entry, was_served=True)
        self.on_served(case.request_id, semantic_lookup, finding.entry)
        self._served.put(case.request_id, case, tenant)
        is_due = self._is_due(probability)
        if ctx.record.sample is not None:
            ctx.record.sample |= {"audit_probability": probability, "is_audited": is_due}
        if is_due and self._may_begin():
            self._choice.audited(pair, tenant)
            question = BackgroundRequest(request, ctx.snapshot, planned, ctx.record.tenant, ctx.cache_salt)
            case = msgspec.structs.replace(case, weight=1.0 / probability, question=question)
            self._begin(self._audit(case, question))

    def disowned(self, request_id: str) -> None:
        """Record that the answer to a request was reported wrong; it is evidence if it was a similar one."""
        case, known = self._served.get(request_id), self._audits.get(request_id)
        if known is not None:
            self.settle(msgspec.structs.replace(known, verdict="wrong", by="feedback"))
        elif case is not None:
            self.settle(self._recorded(case, "wrong", "feedback"))

    def compare(
        self,
        ctx: RequestContext,
        request: ChatRequest,
        planned: PlannedRoute,
        semantic_lookup: SemanticLookup,
        fresh: CacheEntry,
    ) -> None:
        """Compare a share of fresh answers with the stored ones not served, where that is evidence."""
        rule, finding = semantic_lookup.wanted.rule, semantic_lookup.finding
        if finding is None or finding.entry is None:
            return
        lowest = semantic_lookup.stats.lowest(rule.max_error_ratio)
        probability = self._choice.of_other(finding.match_probability, rule.audit_ratio, lowest)
        if self._is_due(probability) and self._may_begin():
            question = BackgroundRequest(request, ctx.snapshot, planned, ctx.record.tenant, ctx.cache_salt)
            case = _case(ctx.record.request_id, semantic_lookup, finding.entry, was_served=False)
            case = msgspec.structs.replace(case, weight=1.0 / probability, question=question)
            self._begin(self._conclude(case, fresh.answer))

    def settle(self, record: AuditRecord) -> None:
        """Apply a verdict, whatever its origin."""
        self._audits.add(record, self._wall())
        self._sink.record(record)

    async def aclose(self) -> None:
        """End the audits under way without a verdict."""
        await self._tasks.cancel()

    def _is_due(self, probability: float) -> bool:
        return probability > 0.0 and self._rng.random() < probability

    def _may_begin(self) -> bool:
        """Return whether there is room for an audit; one that was due is counted as skipped otherwise."""
        if self._guard.strain or self._tasks.num_running >= MAX_RUNNING:
            self._sink.count("skipped")
            return False
        return True

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.spawn(work, "audit")

    async def _audit(self, case: _Case, question: BackgroundRequest) -> None:
        live = self._request.choice(question)
        fresh = None if live is None else await self._request.deployment(question, live)
        if live is None or fresh is None:
            self._sink.count("skipped")
            return
        await self._conclude(case, fresh)
        await self._request_fresh(case, question, live.id, fresh)

    async def _request_fresh(self, case: _Case, question: BackgroundRequest, prompt: str, answer: bytes) -> None:
        """Compare the answer with that of the other model of a predicted pair, and report a verdict.

        Audits are drawn regardless of predictions, so they show how good the smaller model is.
        """
        other, text = question.planned.counterpart(prompt), text_of(answer)
        if self.on_pair is None or other is None or text is None:
            return
        theirs = await self._request.deployment(question, question.snapshot.deployments[other])
        auditor_reply = None if theirs is None else text_of(theirs)
        verdict = "unknown" if auditor_reply is None else (await self._verdict(case, text, auditor_reply))[0]
        if verdict != "unknown":
            await self.on_pair(question, (prompt, other), verdict == "right")

    async def _conclude(self, case: _Case, fresh: bytes) -> None:
        cached_text, fresh_text = text_of(case.entry.answer), text_of(fresh)
        verdict: Verdict = "unknown"
        by: By = "words"
        similarity: float | None = None
        if cached_text is not None and fresh_text is not None:
            verdict, by, similarity = await self._verdict(case, cached_text, fresh_text)
        self._sink.count(verdict)
        record = self._recorded(case, verdict, by, similarity)
        if case.rule.review_texts:
            record = msgspec.structs.replace(record, texts=_texts(case, cached_text, fresh_text))
        self.settle(record)

    def _recorded(self, case: _Case, verdict: Verdict, by: By, answer_similarity: float | None = None) -> AuditRecord:
        finding = case.finding
        return AuditRecord(
            id=case.request_id,
            at=self._wall(),
            tenant=case.whose.tenant,
            route=case.whose.route,
            exact=case.entry.exact,
            entry_id=case.entry.id,
            similarity=finding.similarity,
            runner_up=finding.runner_up,
            match_probability=finding.match_probability,
            shipped_probability=finding.shipped_probability,
            weight=case.weight,
            verdict=verdict,
            by=by,
            was_served=case.was_served,
            answer_similarity=answer_similarity,
            differences=described(differences(case.prompt, case.entry.text or "")),
        )

    async def _verdict(self, case: _Case, stored_text: str, fresh: str) -> tuple[Verdict, By, float | None]:
        if max(len(stored_text), len(fresh)) > MAX_COMPARED_CHARS:
            return "right" if stored_text == fresh else "unknown", "words", None
        both = AnswerPair.of(stored_text, fresh)
        same = both.is_equivalent(f"{case.prompt}\n{case.entry.text or ''}")
        if same is not None:
            return ("right", "words", None) if same else ("wrong", "numbers", None)
        if case.rule.auditor is not None:
            reply = await self._request_verdict(case, case.rule.auditor, stored_text, fresh)
            return "unknown" if reply is None else "right" if reply else "wrong", "judge", None
        vectors = [await self._embedder.embed(text) for text in (stored_text, fresh)]
        similarity = None if vectors[0] is None or vectors[1] is None else float(vectors[0] @ vectors[1])
        return both.verdict(similarity), "encoder", similarity

    async def _request_verdict(self, case: _Case, auditor: str, stored_text: str, fresh: str) -> bool | None:
        """Return whether the auditor finds both answers equal; None when it is busy or replies anything else."""
        question = case.question
        live = None if question is None else question.snapshot.deployments.get(auditor)
        if question is None or live is None:
            return None
        document = auditor_document(case.prompt, stored_text, fresh)
        return auditor_verdict(
            await self._request.deployment(msgspec.structs.replace(question, document=document), live)
        )


def _case(request_id: str, lookup: SemanticLookup, entry: CacheEntry, *, was_served: bool) -> _Case:
    assert lookup.finding is not None, "a lookup that has ended"
    prompt, rule = lookup.key.text or "", lookup.wanted.rule
    return _Case(request_id, lookup.whose, rule, prompt, lookup.finding, entry, 1.0, was_served)


def described(found: Differences) -> tuple[str, ...]:
    """Return a description for people."""
    kinds = {
        "other numbers": found.num_extra_numbers,
        "other names": found.num_extra_names,
        "other order": found.is_reordered,
        "another kind of question": found.has_other_question,
        "words that only the new one has": found.prompt_only,
        "words that only the kept one has": found.cached_only,
    }
    return tuple(kind for kind, amount in kinds.items() if amount)


def _texts(case: _Case, stored_text: str | None, fresh: str | None) -> Texts:
    return Texts(*map(clipped, (case.prompt, case.entry.text or "", stored_text or "", fresh or "")))
