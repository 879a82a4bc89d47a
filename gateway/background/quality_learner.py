"""Learner: labels from audits, shadows and feedback improve the coefficients of a pair, off the request path.

A label holds its features as figures and hashes, without the text. A thread fits the coefficients. They replace
those from a file as long as they predict held-out labels better.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.background.background_request import BackgroundRequest
from gateway.background.cascade_calibrator import CalibrationRestart, CascadeCalibrator
from gateway.background.task_group import BackgroundTasks
from gateway.cache.semantic.semantic_tier import Vector
from gateway.embedding.embedder import Embedder
from gateway.request_context import RequestContext
from gateway.routing.prompt_of import prompt_of, prompt_text
from gateway.telemetry.metrics import GatewayMetrics
from gateway.util.fair_bounded_dict import FairRecent
from routing_policies.policy.members import group_of
from routing_policies.quality.features import Features, features_of
from routing_policies.quality.hashing import hashed_features
from routing_policies.quality.pairs import weak_and_strong
from routing_policies.quality.predictor import Predictor, Predictors
from routing_policies.quality.training.label import Label, Pair, Source, label_of
from routing_policies.quality.training.learning import LabelBuffer, learn_pair

MAX_ANSWERS: Final = 4096
"""Number of answers of smaller models that feedback may still name."""


class _Given(NamedTuple):
    tenant: str
    deployment: str
    pair: Pair
    features: Features
    vector: Vector | None
    kind: str
    confidence: float | None = None


class Learner:
    """Learner with one buffer of labels for each pair; it fits coefficients where there is a predictor to improve."""

    __slots__ = (
        *("_answers", "_buffers", "_embedder", "_metrics", "_predictors", "_retention_s", "_tasks", "_wall"),
        *("calibrator", "keep"),
    )

    def __init__(
        self,
        predictors: Predictors,
        embedder: Embedder,
        *,
        calibrator: CascadeCalibrator,
        metrics: GatewayMetrics,
        tasks: BackgroundTasks,
        retention_s: float,
        wall: Callable[[], float],
    ) -> None:
        """Create a learner; `tasks` must be its own, because it fits once at a time."""
        self._predictors = predictors
        self._embedder = embedder
        self._metrics = metrics
        self._tasks = tasks
        self._retention_s = retention_s
        self._wall = wall
        self._buffers: dict[Pair, LabelBuffer] = {}
        self._answers: FairRecent[tuple[str, str], _Given] = FairRecent(MAX_ANSWERS)
        self.calibrator = calibrator
        """Calibrator of the confidence from which a cascade's first answers go on."""
        self.keep: Callable[[Label], None] = lambda label: None
        """Callback that stores a label, and has it taken here and elsewhere."""

    def remember(self, ctx: RequestContext) -> None:
        """Remember an answer chosen by a prediction, because feedback may name it."""
        record, verdict = ctx.record, None if ctx.routing_request is None else ctx.routing_request.verdict
        for pair_predictor, assessed in () if verdict is None else verdict.assessed:
            if pair_predictor.deployment == group_of(record.deployment):
                pair, vector = pair_predictor.predictor.pair, ctx.known_vector
                given = _Given(record.tenant, pair_predictor.deployment, pair, assessed.features, vector, assessed.kind)
                self._answers.put((record.tenant, record.request_id), given, record.tenant)

    def note_wrong(self, request_id: str, tenant: str) -> bool:
        """Learn that a product reported an answer as wrong; return whether a prediction had chosen it."""
        given = self._answers.pop((tenant, request_id))
        if given is not None:
            self._add(given, lost=1.0, source="feedback")
        return given is not None

    async def note(
        self,
        question: BackgroundRequest,
        ids: tuple[str, str],
        *,
        is_same: bool,
        source: Source,
        ctx: RequestContext | None = None,
    ) -> None:
        """Add a label: two deployments answered one question, and their answers agreed or not.

        Args:
            question: The question that both answered.
            ids: Ids of the two deployments.
            is_same: True if the answers agreed.
            source: Origin of the label.
            ctx: Context of the request, where it was routed by a prediction.
        """
        both = weak_and_strong([item for item in question.snapshot.policy.deployments if item.id in ids])
        if both is None:
            return
        weak, strong = both
        pair = weak.model, strong.model
        features = self._features(question, pair, ctx)
        vector = None if ctx is None else ctx.known_vector
        if vector is None and self._embedder.is_ready:
            vector = await self._embedder.embed(prompt_text(question.request))
        kind = question.planned.route.select.kind
        found = None if ctx is None else ctx.confidence
        confidence = found.probability if found is not None and found.deployment == weak.id else None
        given = _Given(question.tenant, weak.id, pair, features, vector, kind, confidence)
        self._add(given, lost=0.0 if is_same else 1.0, source=source)

    def take(self, key: str, label: Label) -> list[str]:
        """Take a label of this process or another; return the keys of those that it displaces."""
        buffer = self._buffers.setdefault(label.pair, LabelBuffer())
        gone = buffer.add(key, label)
        predictor = self._predictors.find(*label.pair)
        if predictor is not None and buffer.is_worth_learning and not self._tasks.num_running:
            self._tasks.spawn(self._learn(buffer, predictor), "learn")
        self.calibrator.take(key, label)
        return gone

    def drop(self, key: str) -> None:
        """Drop a label that is gone."""
        for buffer in self._buffers.values():
            buffer.remove(key)
        self.calibrator.drop(key)

    def restart(self, restart: CalibrationRestart) -> None:
        """Leave earlier labels of a pair out of its cascades' thresholds."""
        self.calibrator.restart(restart)

    def labels(self) -> dict[Pair, list[tuple[str, Label]]]:
        """Return all labels, oldest first."""
        return {pair: buffer.all() for pair, buffer in self._buffers.items() if len(buffer)}

    def predictor(self, pair: Pair) -> Predictor | None:
        """Return the predictor in force for a pair."""
        return self._predictors.find(*pair)

    async def aclose(self) -> None:
        """Call off what is under way."""
        await self._tasks.cancel()
        await self.calibrator.aclose()

    def _features(self, question: BackgroundRequest, pair: Pair, ctx: RequestContext | None) -> Features:
        verdict = None if ctx is None or ctx.routing_request is None else ctx.routing_request.verdict
        for pair_predictor, assessed in () if verdict is None else verdict.assessed:
            if pair_predictor.predictor.pair == pair:
                return assessed.features
        predictor, prompt = self._predictors.find(*pair), prompt_of(question.request, question.tenant)
        return features_of(prompt) if predictor is None else predictor.assess(prompt).features

    def _add(self, given: _Given, *, lost: float, source: Source) -> None:
        label = label_of(
            hashed_features(given.features),
            given.pair,
            lost=lost,
            source=source,
            at=self._wall(),
            vector=given.vector,
            encoder=self._embedder.encoder_id or "",
            kind=given.kind,
            tenant=given.tenant,
            confidence=given.confidence,
        )
        self._metrics.routing_labels.labels(given.deployment, source, "good" if lost < 0.5 else "lost").inc()
        self.keep(label)

    async def _learn(self, buffer: LabelBuffer, predictor: Predictor) -> None:
        """Fit new coefficients for a pair; the old ones stay in force where that fails."""
        while buffer.is_worth_learning:
            buffer.forget_before(self._wall() - self._retention_s)
            predictor.adopt(await asyncio.to_thread(learn_pair, buffer.take(), predictor.base))
