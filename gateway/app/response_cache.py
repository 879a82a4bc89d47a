"""ResponseCache: the parts of the response cache in one process, assembled and run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from gateway.admission.guard import OverloadGuard
from gateway.app.runtime import Runtime
from gateway.background.background_request import BackgroundRequester
from gateway.background.cache_auditor import Auditor, AuditSink
from gateway.background.task_group import BackgroundTasks
from gateway.cache.audit.audit_journal import AuditJournal
from gateway.cache.audit.audit_record import AuditRecord
from gateway.cache.audit.audit_registry import AuditRegistry
from gateway.cache.audit.error_budget import budget_state
from gateway.cache.audit.match_models import LEARN_S, MIN_NEWS, MatchModels
from gateway.cache.audit.route_stats import RouteStats, RouteStatsTable, TenantRoute
from gateway.cache.cache_stage import CacheStage
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.exact.exact_cache import ExactCache
from gateway.cache.exact.exact_tier import ExactTier, Selection
from gateway.cache.index.index_file import SAVE_S, IndexFile
from gateway.cache.semantic.late_index import LateIndex
from gateway.cache.semantic.semantic_tier import SemanticTier
from gateway.cache.semantic_stage import MODE, SemanticStage
from gateway.cache.sharing.sharing import CacheSharing
from gateway.config.settings import GatewayConfig
from gateway.embedding.embedder import Embedder
from gateway.embedding.encoder import have_same_weights
from gateway.embedding.similarity_scale import SENTENCES, SimilarityScale, scale_of
from gateway.machine.answer_file import AnswerFile
from gateway.machine.process import MachineProcess
from gateway.machine.shared_tier import SharedTier
from gateway.routing.snapshot import PolicyInForce
from gateway.store.base import Store
from gateway.util.doubling_pauses import Work, lasting
from routing_policies.policy.document import Policy

INDEX_FILE: Final = "similar.index"
_READY_POLL_S: Final = 0.1
_COMPACT_S: Final = 0.5


class ResponseCache:
    """The exact tier and, from the first policy with a semantic route, the semantic one."""

    def __init__(
        self,
        config: GatewayConfig,
        runtime: Runtime,
        *,
        match_models: MatchModels,
        embedder: Embedder,
        policy: PolicyInForce,
        guard: OverloadGuard,
        member: MachineProcess | None = None,
    ) -> None:
        """Assemble the parts; `member` is this process among those of one gateway, None where it is the only one."""
        self._saves_index = member is None or member.is_control
        self._holder = runtime.holder
        self._wall = runtime.wall
        self._match_models = match_models
        self._answer_file: AnswerFile | None = None
        self._policy = policy
        self._metrics = runtime.metrics
        self._log = runtime.log
        self.route_stats = RouteStatsTable(match_models.first)
        self.audits = AuditRegistry(self.route_stats, bound_of=self._bound_of, on_level=self._note_level)
        tier = self._make_tier(config, member, runtime)
        self.exact = ExactCache(
            tier, wall=self._wall, on_taken=self._taken, on_wrong=self._wrong, on_purged=self._purged
        )
        self.semantic = self._make_semantic(tier)
        self.embedder = embedder
        self.auditor = self._make_auditor(runtime, guard)
        self.late = self._make_late(runtime)
        self.similar = self._make_similar(runtime)
        self.stage = CacheStage(self.exact, self.similar, BackgroundTasks(self._log.failure))
        """The cache's stage in the request pipeline."""
        self._file = IndexFile(config.process.runtime_dir / INDEX_FILE)
        self._journal: AuditJournal | None = None
        self.on_audit: Callable[[AuditRecord], None] = lambda record: None
        """Callback for every verdict that this process reaches."""
        self.on_verdict: Callable[[AuditRecord], None] = lambda record: None
        """Callback for every verdict of an audit, a person or feedback that is new here, once each."""
        self.on_feedback: Callable[[str, CacheEntry], None] = lambda request_id, entry: None
        """Callback for a request whose response was reported wrong, and the entry behind it."""
        self._is_wanted = asyncio.Event()
        self._has_index = False
        self._report = runtime.note_failed_task

    def _make_tier(self, config: GatewayConfig, member: MachineProcess | None, runtime: Runtime) -> ExactTier:
        """Return the entries: of a worker those in the machine's file, else those in this process's memory."""
        path = None if config.cache.shared is False else config.answers_address.path
        if member is None or member.is_control or path is None:
            num_sharers = 1 if member is None or path is not None else member.spec.num_workers
            max_bytes = config.cache.max_mb * 1024 * 1024 // num_sharers
            return ExactTier(max_bytes=max_bytes, on_removed=self._removed, on_evicted=self._evicted)
        file = self._answer_file = AnswerFile(
            path, wall=runtime.wall, on_failure=lambda error: runtime.log.failure("answers_unreadable", error)
        )
        return SharedTier(file, on_removed=self._removed)

    def _make_semantic(self, tier: ExactTier) -> SemanticTier:
        return SemanticTier(
            tier,
            track_of=self.audits.track_of,
            is_barred=self.audits.is_barred,
            on_failure=lambda error: self._log.failure("semantic_tier_failed", error),
            wall=self._wall,
        )

    def _make_auditor(self, runtime: Runtime, guard: OverloadGuard) -> Auditor:
        log, metrics = runtime.log, runtime.metrics
        return Auditor(
            requester=BackgroundRequester(rng=runtime.rng, ids=runtime.ids),
            embedder=self.embedder,
            stats=self.audits,
            guard=guard,
            sink=AuditSink(record=self._settled, count=lambda end: metrics.cache_audits.labels(end).inc()),
            tasks=BackgroundTasks(lambda _, error: log.failure("audit_failed", error)),
            rng=runtime.rng,
            wall=runtime.wall,
        )

    def _make_late(self, runtime: Runtime) -> LateIndex:
        return LateIndex(
            self.semantic,
            self.embedder,
            times=self.route_stats.times,
            count=lambda end: runtime.metrics.cache_late_index.labels(end).inc(),
            clock=runtime.clock,
        )

    def _make_similar(self, runtime: Runtime) -> SemanticStage:
        return SemanticStage(
            self.semantic,
            self.embedder,
            self.route_stats,
            self.auditor,
            late=self.late,
            clock=runtime.clock,
            wall=runtime.wall,
            workers=runtime.workers,
        )

    @property
    def is_in_file(self) -> bool:
        """Return whether this process reads cached responses from the machine's file, without copies of its own."""
        return isinstance(self.exact.tier, SharedTier)

    def take_hits(self) -> list[bytes]:
        """Return the fingerprints of entries that this worker served from the machine's file since the last call."""
        tier = self.exact.tier
        return tier.take_hits() if isinstance(tier, SharedTier) else []

    def note_hits(self, hits: list[bytes]) -> None:
        """Count hits that a worker served."""
        for exact in hits:
            self.exact.tier.note_hit(exact)

    @property
    def is_semantic(self) -> bool:
        """Return whether any policy so far wants similar answers."""
        return self._is_wanted.is_set()

    def note_policy(self, policy: Policy) -> None:
        """Start the parts of the cache that a policy needs, once the first such policy is in force."""
        if any(route.cache.mode == MODE for route in policy.routes):
            self.embedder.start()
            self._is_wanted.set()

    @property
    def is_ready(self) -> bool:
        """Return whether similar answers are looked up."""
        return self.embedder.is_ready

    async def run(self, store: Store, sharing: CacheSharing | None) -> None:
        """Persist audits and the index until cancelled.

        Audits go to `store`. The index goes to its file where `sharing` lets answers outlive this process.
        """
        await self._is_wanted.wait()
        self._journal = AuditJournal(store, self.audits, self.route_stats, holder=self._holder, wall=self._wall)
        works: dict[str, Work] = {
            "audit_journal": self._journal.run,
            "index_file": partial(self._keep_index, sharing),
            "recalibration": self._learn,
            "late_index": self.late.run,
        }
        async with asyncio.TaskGroup() as tasks:
            for name, work in works.items():
                tasks.create_task(lasting(work, name, self._report), name=name)

    async def aclose(self) -> None:
        """Write everything out; call it when `run` has ended."""
        self._file.stop()
        await self.auditor.aclose()
        if self._journal is not None:
            await self._journal.flush()
        await self._save()
        if self._answer_file is not None:
            self._answer_file.close()

    def read_state(self) -> None:
        """Bring the gauges up to date."""
        metrics = self._metrics
        ratios = (metrics.cache_error_ratio, metrics.cache_error_ratio_low, metrics.cache_error_ratio_high)
        for gauge in (*ratios, metrics.cache_semantic_level):
            gauge.clear()
        for whose, stats in self.route_stats:
            metrics.cache_semantic_level.labels(*whose).set(float(stats.level))
            found = stats.evidence.served()
            if not found.num_audited:
                continue  # nothing is known, which is not the same as no error
            for gauge, value in zip(ratios, (found.ratio, found.low, found.high), strict=True):
                gauge.labels(*whose).set(value)
        metrics.cache_entries.labels().set(self.exact.num_entries)
        metrics.cache_index_entries.labels().set(self.semantic.num_entries)
        metrics.cache_index_waiting.labels().set(self.late.num_waiting)

    async def _keep_index(self, sharing: CacheSharing | None) -> None:
        self._has_index = self._has_index or await self._open_index(sharing)
        saved_at = time.monotonic()
        while self._has_index:
            self.semantic.drops_orphans = sharing is None or sharing.is_caught_up
            await asyncio.sleep(_COMPACT_S)
            await self._file.compact()
            if time.monotonic() >= saved_at + SAVE_S:
                await self._save()
                saved_at = time.monotonic()

    async def _open_index(self, sharing: CacheSharing | None) -> bool:
        """Open the index once the encoder is ready; return False where similarities mean nothing."""
        while not self.embedder.is_ready:
            await asyncio.sleep(_READY_POLL_S)
        name = self.embedder.encoder_id
        assert name is not None, "an encoder that is ready has a name"
        dimensions = self.embedder.dimensions
        assert dimensions is not None, "and dimensions"
        scale = await self._scale_of(name)
        if scale is None:
            return False  # exact answers only
        index, problem = await self._file.open(name, dimensions, is_saved=self._saves_index and sharing is not None)
        if problem is not None:
            self._log.event("index_dropped", level="warning", error=problem)
        self.semantic.open(index, name, scale.of)
        self.late.begin()
        return True

    async def _scale_of(self, encoder: str) -> SimilarityScale | None:
        """Return the scale of an encoder's cosines: as they are for the match model's own, else measured."""
        calibrated_for = self._match_models.encoder_id
        if calibrated_for is None or have_same_weights(encoder, calibrated_for):
            return SimilarityScale()
        texts = [text for wordings in SENTENCES for text in wordings]
        vectors = [vector for text in texts if (vector := await self.embedder.embed(text)) is not None]
        scale = scale_of(np.stack(vectors)) if len(vectors) == len(texts) else None
        if scale is None:
            self._log.event("encoder_without_scale", level="error", encoder=encoder)
        else:
            self._log.event(
                "similarities_scaled",
                encoder=encoder,
                calibrated_for=calibrated_for,
                slope=scale.slope,
                shift=scale.shift,
            )
        return scale

    async def _learn(self) -> None:
        """Refit the match models to the audits of each tenant's route."""
        while True:
            await asyncio.sleep(LEARN_S)
            for _, stats in self.route_stats:
                if stats.num_news >= MIN_NEWS:
                    stats.recalibrated(await asyncio.to_thread(self._match_models.learn, tuple(stats.evidence.samples)))

    async def _save(self) -> None:
        """Write the index file. A failed write costs the next start some time, and nothing else."""
        try:
            await self._file.save()
        except OSError as error:
            self._log.event("index_not_saved", level="warning", error=str(error))

    def _bound_of(self, route: str) -> float | None:
        snapshot = self._policy.snapshot
        if snapshot is None:
            return None
        rule = next((item.cache for item in snapshot.policy.routes if item.id == route), None)
        return None if rule is None or rule.mode != MODE else rule.max_error_ratio

    def _removed(self, entry: CacheEntry) -> None:
        self.semantic.removed(entry)

    def _evicted(self, entry: CacheEntry) -> None:
        self.exact.evicted(entry)

    def _taken(self, entry: CacheEntry) -> None:
        self.semantic.taken(entry)

    def _purged(self, selection: Selection) -> None:
        """Remove the texts that were stored for review along with the purged entries."""
        for record in self.audits.forget_texts(lambda record: _is_covered(record, selection)):
            self._record(record)

    def _wrong(self, request_id: str, entry: CacheEntry) -> None:
        self.auditor.disowned(request_id)
        self.on_feedback(request_id, entry)

    def _settled(self, record: AuditRecord) -> None:
        self.on_verdict(record)
        self._record(record)

    def _record(self, record: AuditRecord) -> None:
        self.on_audit(record)
        if self._journal is not None:
            self._journal.record(record)

    def _note_level(self, whose: TenantRoute, stats: RouteStats) -> None:
        self._log.event(
            "cache_promise", level="warning", tenant=whose.tenant, route=whose.route, state=budget_state(stats.level)
        )
        if self._journal is not None:
            self._journal.note_level(whose, stats)


def _is_covered(record: AuditRecord, selection: Selection) -> bool:
    texts = record.texts
    text = "" if texts is None else f"{texts.prompt}\n{texts.cached_prompt}"
    return selection.matches(record.entry_id, record.tenant, record.route, text, record.at)
