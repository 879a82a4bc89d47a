"""RequestPath: the pipeline of one process and all that only requests use, put together beside the app."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from gateway.admin.handlers.preview import PreviewHandlers
from gateway.admission.admitter import Admitter
from gateway.admission.gate import AdmissionGate, AdmissionStage
from gateway.admission.guard import OverloadGuard
from gateway.admission.ladder import Ladder
from gateway.admission.quota_stage import QuotaStage
from gateway.admission.request_reader import RequestReader
from gateway.admission.waiting_room import WaitingRoom
from gateway.app.connections.upstream_clients import open_upstream
from gateway.app.observability import Observability
from gateway.app.response_cache import ResponseCache
from gateway.app.runtime import Runtime
from gateway.app.shared_state import SharedState
from gateway.background.background_request import BackgroundRequester
from gateway.background.cascade_calibrator import CascadeCalibrator
from gateway.background.follow_up import FollowUp
from gateway.background.label_store import LabelJournal
from gateway.background.quality_learner import Learner
from gateway.background.shadowing import Shadower
from gateway.background.task_group import BackgroundTasks
from gateway.chat.request import ChatRequestParser
from gateway.config.settings import GatewayConfig
from gateway.deployments.health.second_attempts import RetryBudget
from gateway.deployments.price import Pricer
from gateway.dialects.client_dialect import ClientDialect
from gateway.dialects.completions.dialect import completions_dialect
from gateway.dialects.embeddings.dialect import embeddings_dialect
from gateway.dialects.messages.exchange import MessagesDialect
from gateway.dialects.messages.request import MessagesParser
from gateway.dialects.responses.exchange import ResponsesDialect
from gateway.forwarding.forward import Forwarder
from gateway.limits.body_budget import BodyBudget
from gateway.machine.process import MachineProcess
from gateway.pipeline import ChatPipeline, DialectEndpoint, Stages
from gateway.prompt_embedding import PromptEmbedding
from gateway.quotes.quote_token import QuoteSigner
from gateway.quotes.serving.handed_quotes import QuotesElsewhere, holder_of
from gateway.quotes.serving.open_quotes import OpenQuotes
from gateway.quotes.serving.quote_endpoint import QuotedStages, QuoteEndpoint
from gateway.quotes.serving.quote_stage import QuoteServices, QuoteStage
from gateway.quotes.serving.quoter import Quoter
from gateway.replay.replayer import Replayer
from gateway.replay.sender import ReplaySender
from gateway.replay.walk import ReplayTools
from gateway.routing.snapshot import PolicyInForce
from gateway.trimming.images import ImageShrinker
from gateway.trimming.similarity import PassageSimilarity
from gateway.trimming.trim_stage import TrimStage
from gateway.trimming.trimmer import PolicyTrimmer
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from routing_policies.quality.predictor import Predictors

DAY_S: Final = 24 * 3600.0
_IMAGE_PARTS: Final = 4
"""Divisor of the bodies' memory that bounds the image being scaled, beside the bodies."""

_TO_WORKERS: Final = PoolLimits(max_connections=1024)
"""Limits of the connections to one other worker; each waits for a permit that the worker holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Guards that stop a process from admitting more than it can hold."""

    guard: OverloadGuard
    bodies: BodyBudget


class RequestPath:
    """The path of requests: `pipeline` serves; `aclose` ends leftover work, once no request is served any more."""

    def __init__(
        self,
        config: GatewayConfig,
        runtime: Runtime,
        *,
        policy: PolicyInForce,
        protection: Protection,
        cache: ResponseCache,
        predictors: Predictors,
        stores: SharedState,
        observability: Observability,
    ) -> None:
        clock, metrics = runtime.clock, runtime.metrics
        self.pricer = Pricer()
        """Estimator of the tokens of requests."""
        self.room = WaitingRoom(clock, lambda route, end: metrics.start_waits.labels(route, end).inc())
        self._images = ImageShrinker(protection.bodies.total_bytes // _IMAGE_PARTS)
        self._make_learner(config, runtime, cache, predictors, stores)
        self._shadower = self._make_shadower(runtime, protection.guard)
        trimmer = PolicyTrimmer()
        trims = TrimStage(trimmer, PassageSimilarity(cache.embedder), self._images, self.pricer, runtime.workers)
        self._make_tools(runtime, policy, cache, trims)
        admitter = Admitter(clock, protection.guard, observability.tracing)
        reader = RequestReader(ChatRequestParser(), protection.bodies, runtime.workers, config.edge.body.max_bytes)
        quotas = QuotaStage(stores.quotas, self.pricer, clock)
        ladder = Ladder(trimmer=trimmer, cache=cache.exact, pricer=self.pricer)
        admission = AdmissionStage(
            admitter=admitter,
            reader=reader,
            pricer=self.pricer,
            embeddings=PromptEmbedding(cache.embedder),
            gate=AdmissionGate(ladder=ladder, clock=clock),
            trims=trims,
        )
        shared = QuotedStages(admitter=admitter, reader=reader, trims=trims, quotas=quotas, admission=admission)
        quoting = self._make_quoting(runtime, stores)
        stages = Stages(
            shared=shared,
            cache=cache.stage,
            forwarder=self._make_forwarder(runtime),
            follow_up=FollowUp(self.pricer, self.learner, self._shadower),
            quotes=QuoteStage(quoting),
        )
        self.pipeline = _pipeline(runtime, policy, stages, observability)
        self.quotes = _quote_endpoint(runtime, policy, shared, quoting)
        """Endpoint of quotes."""
        self._make_dialects(runtime, stores)

    def _make_shadower(self, runtime: Runtime, guard: OverloadGuard) -> Shadower:
        return Shadower(
            BackgroundRequester(rng=runtime.rng, ids=runtime.ids),
            learner=self.learner,
            metrics=runtime.metrics,
            rng=runtime.rng,
            is_strained=lambda: bool(guard.strain),
            tasks=BackgroundTasks(runtime.note_failed_task),
        )

    def _make_tools(self, runtime: Runtime, policy: PolicyInForce, cache: ResponseCache, trims: TrimStage) -> None:
        """Make what admins use on the path of requests, without serving any."""
        self.preview = PreviewHandlers(
            lambda: policy.current, ChatRequestParser(), trims, self.pricer, runtime.clock, runtime.workers
        )
        """Previews for admins: the fate of a request without serving it."""
        self.replayer = Replayer(
            ReplayTools(
                sender=ReplaySender(runtime.ids),
                parser=ChatRequestParser(),
                trims=trims,
                cache=cache.stage,
                pricer=self.pricer,
                policy=lambda: policy.current,
            )
        )
        """Replays of recorded answers for admins."""

    def _make_forwarder(self, runtime: Runtime) -> Forwarder:
        return Forwarder(
            clock=runtime.clock,
            metrics=runtime.metrics,
            budget=RetryBudget(),
            room=self.room,
            workers=runtime.workers,
            draw_seed=lambda: runtime.rng.getrandbits(63),
        )

    def _make_dialects(self, runtime: Runtime, stores: SharedState) -> None:
        """Make the endpoints of the other APIs on the pipeline."""
        responses = ResponsesDialect(
            ChatRequestParser(), stores.responses, wall=runtime.wall, new_token=lambda: secrets.token_hex(24)
        )
        self.messages = MessagesParser(ChatRequestParser())
        """Parser of the Messages API, for the count of tokens too."""
        dialects: tuple[ClientDialect, ...] = (
            responses,
            MessagesDialect(self.messages, runtime.wall),
            completions_dialect(),
            embeddings_dialect(),
        )
        self.dialects = tuple(DialectEndpoint(self.pipeline, dialect) for dialect in dialects)
        """Endpoints of the other APIs that the pipeline serves."""

    def _make_quoting(self, runtime: Runtime, stores: SharedState) -> QuoteServices:
        metrics = runtime.metrics
        self.open_quotes = OpenQuotes(
            runtime.clock,
            num_processes=stores.num_processes,
            on_lapse=lambda: metrics.quotes.labels("lapsed").inc(),
        )
        """Quotes of this process that may be sent back."""
        member = stores.member
        self._quotes_elsewhere = None if member is None else _quotes_elsewhere(member, runtime)
        return QuoteServices(
            signer=QuoteSigner(stores.control, runtime.clock),
            open_quotes=self.open_quotes,
            quotas=stores.quotas,
            holder=runtime.holder if member is None else holder_of(runtime.holder, member.spec.column),
            metrics=metrics,
            clock=runtime.clock,
            wall=runtime.wall,
            workers=runtime.workers,
            parser=ChatRequestParser(),
            elsewhere=self._quotes_elsewhere,
        )

    def _make_learner(
        self,
        config: GatewayConfig,
        runtime: Runtime,
        cache: ResponseCache,
        predictors: Predictors,
        stores: SharedState,
    ) -> None:
        retention_s = config.policy.label_retention_days * DAY_S
        calibrator = CascadeCalibrator(
            predictors.thresholds,
            metrics=runtime.metrics,
            tasks=BackgroundTasks(runtime.note_failed_task),
            wall=runtime.wall,
        )
        calibrator.on_change = lambda pair, min_quality, threshold: runtime.log.event(
            "cascade_threshold",
            weak=pair[0],
            strong=pair[1],
            min_quality=min_quality,
            state=threshold.state,
            confidence=round(threshold.confidence, 4),
            num_labels=threshold.num_labels,
        )
        learner = self.learner = Learner(
            predictors,
            cache.embedder,
            calibrator=calibrator,
            metrics=runtime.metrics,
            tasks=BackgroundTasks(runtime.note_failed_task),
            retention_s=retention_s,
            wall=runtime.wall,
        )
        self.labels = LabelJournal(
            stores.control, learner, holder=runtime.holder, retention_s=retention_s, wall=runtime.wall
        )
        learner.keep = self.labels.record
        cache.auditor.on_pair = lambda question, ids, is_same: learner.note(
            question, ids, is_same=is_same, source="audit"
        )

    async def aclose(self) -> None:
        """Call off what is under way."""
        self._images.close()
        self.open_quotes.close()
        if self._quotes_elsewhere is not None:
            await self._quotes_elsewhere.aclose()
        await self.pipeline.aclose()
        await self._shadower.aclose()
        await self.learner.aclose()
        await self.labels.flush()


def _pipeline(runtime: Runtime, policy: PolicyInForce, stages: Stages, observability: Observability) -> ChatPipeline:
    return ChatPipeline(
        policy,
        stages,
        recorder=observability.recorder,
        log=runtime.log,
        ids=runtime.ids,
        clock=runtime.clock,
        sampler=observability.sampler,
        answers=observability.answers,
    )


def _quote_endpoint(
    runtime: Runtime, policy: PolicyInForce, stages: QuotedStages, quoting: QuoteServices
) -> QuoteEndpoint:
    return QuoteEndpoint(
        lambda: policy.current, stages, Quoter(quoting), ids=runtime.ids, log=runtime.log, clock=runtime.clock
    )


def _quotes_elsewhere(member: MachineProcess, runtime: Runtime) -> QuotesElsewhere:
    """Return the quotes of the other workers."""
    return QuotesElsewhere(
        {
            column: open_upstream(
                Target.parse(f"unix:{member.socket_of(column)}"), limits=_TO_WORKERS, clock=runtime.clock
            )
            for column in member.worker_columns
            if column != member.spec.column
        }
    )
