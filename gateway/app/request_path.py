"""RequestPath: the pipeline of one process and all that only requests use, put together beside the app."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from gateway.admin.handlers.preview import PreviewHandlers
from gateway.admission.admitter import Admitter
from gateway.admission.gate import AdmissionGate
from gateway.admission.guard import OverloadGuard
from gateway.admission.ladder import Ladder
from gateway.admission.waiting_room import WaitingRoom
from gateway.app.observability import Observability
from gateway.app.response_cache import ResponseCache
from gateway.app.shared_state import SharedState
from gateway.background.background_request import BackgroundRequester
from gateway.background.label_store import LabelJournal
from gateway.background.quality_learner import Learner
from gateway.background.shadowing import Shadower
from gateway.background.task_group import BackgroundTasks, Report
from gateway.chat.request import ChatRequestParser
from gateway.config.settings import GatewayConfig
from gateway.deployments.health.retry_budget import RetryBudget
from gateway.deployments.price import Pricer
from gateway.embedding.embedder import Embedder
from gateway.forwarding.forward import Forwarder
from gateway.ids import RequestIds
from gateway.limits.body_budget import BodyBudget
from gateway.pipeline import ChatPipeline
from gateway.prompt_embedding import PromptEmbedding
from gateway.routing.sampling import RecordingSampler
from gateway.routing.snapshot import PolicySnapshot
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.timeline import Clock
from gateway.trimming.images import ImageShrinker
from gateway.trimming.trimmer import PolicyTrimmer
from gateway.util.workers import Workers
from routing_policies.quality.predictor import Predictors

DAY_S: Final = 24 * 3600.0
_IMAGE_PARTS: Final = 4
"""The image that is being scaled may take one of so many parts of what bodies may take, beside them."""


class RequestPath:
    """`pipeline` serves; `aclose` ends what requests left behind, once none is served any more."""

    def __init__(
        self,
        config: GatewayConfig,
        metrics: GatewayMetrics,
        log: LogWriter,
        *,
        policy: Callable[[], PolicySnapshot],
        guard: OverloadGuard,
        bodies: BodyBudget,
        answers: ResponseCache,
        embedder: Embedder,
        predictors: Predictors,
        stores: SharedState,
        records: Observability,
        workers: Workers,
        sampler: RecordingSampler | None,
        ids: RequestIds,
        rng: random.Random,
        clock: Clock,
        wall: Callable[[], float],
        holder: str,
        report: Report,
    ) -> None:
        """`report` is told what failed in the background; `holder` names this process among all that share a store."""
        trimmer, pricer, cache = PolicyTrimmer(), Pricer(), answers.exact
        self._images = ImageShrinker(bodies.total_bytes // _IMAGE_PARTS)
        learner = self.learner = Learner(
            predictors,
            embedder,
            metrics=metrics,
            tasks=BackgroundTasks(report),
            retention_s=config.policy.label_retention_days * DAY_S,
            wall=wall,
        )
        self.labels = LabelJournal(
            stores.control, learner, holder=holder, retention_s=config.policy.label_retention_days * DAY_S, wall=wall
        )
        learner.keep = self.labels.record
        answers.auditor.on_pair = lambda question, ids, is_same: learner.note(
            question, ids, is_same=is_same, source="audit"
        )
        self._shadower = Shadower(
            BackgroundRequester(rng=rng, ids=ids),
            learner=self.learner,
            metrics=metrics,
            rng=rng,
            is_strained=lambda: bool(guard.strain),
            tasks=BackgroundTasks(report),
        )
        self.room = WaitingRoom(clock, lambda route, end: metrics.start_waits.labels(route, end).inc())
        self.preview = PreviewHandlers(policy, ChatRequestParser(), trimmer, pricer, clock, workers)
        """Shows admins what would become of a request."""
        self.pipeline = ChatPipeline(
            policy=policy,
            parser=ChatRequestParser(),
            admitter=Admitter(clock),
            guard=guard,
            trimmer=trimmer,
            images=self._images,
            cache=cache,
            similar=answers.similar,
            pricer=pricer,
            meanings=PromptEmbedding(embedder),
            gate=AdmissionGate(ladder=Ladder(trimmer=trimmer, cache=cache, pricer=pricer), clock=clock),
            forwarder=Forwarder(clock=clock, metrics=metrics, budget=RetryBudget(), room=self.room, workers=workers),
            learner=self.learner,
            shadower=self._shadower,
            quotas=stores.quotas,
            recorder=records.recorder,
            tracing=records.tracing,
            log=log,
            ids=ids,
            clock=clock,
            workers=workers,
            bodies=bodies,
            max_body_bytes=config.edge.body.max_bytes,
            sampler=sampler,
        )

    async def aclose(self) -> None:
        """Call off what is under way."""
        self._images.close()
        await self.pipeline.aclose()
        await self._shadower.aclose()
        await self.learner.aclose()
        await self.labels.flush()
