"""Learner: labels from shadows and feedback become better coefficients of a pair, off the path of requests.

A label is what features were made of, without the text. Coefficients are fitted on a thread, and take the place of
those that came from a file until the process ends.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from gateway.background import BackgroundTasks
from gateway.telemetry.metrics import GatewayMetrics
from gateway.turn import Turn
from routing_policies.quality.learning import LabelBook, fit_labels
from routing_policies.quality.pairs import Judge
from routing_policies.quality.predictor import Judged, Predictor
from routing_policies.quality.training import Outcome

MAX_ANSWERS: Final = 4096
"""Answers of smaller models that feedback may still name."""


class Learner:
    """One book of labels for each pair."""

    __slots__ = ("_answers", "_books", "_metrics", "_tasks")

    def __init__(self, *, metrics: GatewayMetrics, tasks: BackgroundTasks) -> None:
        """`tasks` are its own: it learns once at a time."""
        self._metrics = metrics
        self._tasks = tasks
        self._books: dict[tuple[str, str], LabelBook] = {}
        self._answers: OrderedDict[tuple[str, str], tuple[Judge, Judged]] = OrderedDict()

    def remember(self, turn: Turn) -> None:
        """A predicted answer was given: feedback may name it."""
        record, verdict = turn.record, None if turn.ask is None else turn.ask.verdict
        for judge, judged in () if verdict is None else verdict.judged:
            if judge.deployment == record.deployment:
                self._answers[record.tenant, record.request_id] = (judge, judged)
                if len(self._answers) > MAX_ANSWERS:
                    self._answers.popitem(last=False)

    def note_wrong(self, request_id: str, tenant: str) -> bool:
        """A product says that the answer was wrong; whether a prediction let it be given."""
        found = self._answers.pop((tenant, request_id), None)
        if found is not None:
            self._add(*found, lost=1.0, source="feedback")
        return found is not None

    def note(self, turn: Turn, other: str, *, lost: float) -> None:
        """The answer was held against that of `other`; `lost` is what the smaller model's lacked, in [0, 1]."""
        verdict = None if turn.ask is None else turn.ask.verdict
        pair = {turn.record.deployment, other}
        for judge, judged in () if verdict is None else verdict.judged:
            if judge.deployment in pair:
                self._add(judge, judged, lost=lost, source="shadow")

    def _add(self, judge: Judge, judged: Judged, *, lost: float, source: str) -> None:
        predictor = judge.predictor
        book = self._books.setdefault(predictor.pair, LabelBook())
        book.add(Outcome(features=judged.features, lost=lost))
        self._metrics.routing_labels.labels(judge.deployment, source, "good" if lost < 0.5 else "lost").inc()
        if book.is_worth_learning and not self._tasks.num_running:
            self._tasks.spawn(_learn(book, predictor), "learn")

    async def aclose(self) -> None:
        """Call off what is under way."""
        await self._tasks.cancel()


async def _learn(book: LabelBook, predictor: Predictor) -> None:
    """Where it fails, the old coefficients still stand."""
    predictor.adopt(await asyncio.to_thread(fit_labels, *book.take(), predictor.model))
