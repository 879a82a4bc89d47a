"""Draft tokens of prediction heads, behind the tokens that a step has just chosen."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import numpy as np
import torch

from engine.cpu.multi_step import argmax as likely
from engine.models.multi_step import MultiStep, MultiStepReport
from engine.models.prediction_heads import FusedHeads, HeadPredictions, MedusaHeads
from engine.sampling.greedy import is_greedy
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.sequence import Sequence
from engine.step.step_output import SequenceResult


def shared_stops(seqs: SequenceOf[Sequence]) -> tuple[int, ...] | None:
    """Return the tokens that end these sequences, or None unless compiled code can choose all of their next tokens.

    Compiled code takes the most likely token, supports no grammar and no adapter, and has one list of end tokens.
    """
    stops = seqs[0].params.stop_token_ids if seqs else None
    for seq in seqs:
        is_plain = seq.grammar is None and seq.adapter is None and is_greedy(seq.params)
        if not is_plain or seq.params.stop_token_ids != stops:
            return None
    return stops


class MedusaProposer:
    """Proposer by Medusa heads, which run within the call that computes a step if possible, else behind it."""

    def __init__(self, heads: MedusaHeads) -> None:
        likely.prepare()
        self._heads = heads
        self._fused = heads if isinstance(heads, FusedHeads) else None

    @property
    def multi_step(self) -> MultiStep | None:
        """Computation of steps that follow one another; None if the model has none."""
        return None if self._fused is None else self._fused.multi_step

    def prepare(self, scheduled: SchedulerOutput) -> None:
        """Set which heads and further steps run within the call that computes this step."""
        fused = self._fused
        if fused is None:
            return
        if scheduled.predicts or scheduled.multi_step is not None:
            seqs = [chunk.seq for chunk in scheduled.chunks if chunk.samples]
            stops = shared_stops(seqs)
            if stops is not None and fused.arrange(len(seqs), stops, runs_heads=scheduled.predicts):
                if scheduled.multi_step is not None:
                    fused.multi_step.order(scheduled.multi_step)
                return
        fused.arrange(0, ())

    def report(self) -> MultiStepReport | None:
        """Return the output of several steps together; None where no step followed the last one."""
        return None if self._fused is None else self._fused.multi_step.report()

    def seen(self, newest: list[int]) -> HeadPredictions | None:
        """Return the heads' predictions of the last call, if its newest tokens are `newest`."""
        seen = None if self._fused is None else self._fused.step_predictions()
        return seen.predictions if seen is not None and seen.chosen == newest else None

    def predict(
        self, hidden: torch.Tensor, chunks: SequenceOf[ScheduledChunk], results: SequenceOf[SequenceResult]
    ) -> HeadPredictions | None:
        """Return the predictions behind the newest token of each sequence; None where all of these end.

        Args:
            hidden: Final hidden states [N, hidden] of the sampled positions, sequence after sequence.
            chunks: Sequences that sample.
            results: Result of each sequence.
        """
        newest = [result.token_ids[-1] for result in results if result.token_ids]
        seen = self.seen(newest)
        if seen is not None:
            return seen
        places, start, continues = [], 0, False
        for chunk, result in zip(chunks, results, strict=True):
            if result.token_ids:
                places.append(start + len(result.token_ids) - 1)
                continues = continues or result.token_ids[-1] not in chunk.seq.params.stop_token_ids
            start += 1 + len(chunk.draft_token_ids)
        if not continues:
            return None
        return self._read(hidden if len(places) == start else hidden[places], newest)

    def _read(self, hidden: torch.Tensor, newest: list[int]) -> HeadPredictions:
        logits = self._heads.predict_logits(hidden, torch.tensor(newest, device=hidden.device)).cpu().numpy()
        found = HeadPredictions(*np.empty((2, *logits.shape[:2]), dtype=np.int64))
        likely.likeliest(logits, *found)
        return found
