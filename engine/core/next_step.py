"""Prediction of the next step while the tokens of the current one are still being computed."""

from __future__ import annotations

from engine.kv_cache.block_manager import BlockManager
from engine.runner.flight import LaunchingRunner
from engine.scheduler.scheduler import Scheduler
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.sequence import Sequence, SequenceState


class NextStep:
    """Predictor of the step behind one whose tokens have not arrived yet."""

    def __init__(self, scheduler: Scheduler, blocks: BlockManager, runner: LaunchingRunner) -> None:
        self._scheduler = scheduler
        self._blocks = blocks
        self._runner = runner
        self._num_frees = 0

    def scheduled(self) -> None:
        """Record that the scheduler has just chosen a step."""
        self._num_frees = self._blocks.num_frees

    def following(self, scheduled: SchedulerOutput, now: float) -> SchedulerOutput | None:
        """Return the step behind `scheduled`, with its blocks allocated; None where only the scheduler can decide."""
        if not self._may_continue(scheduled, now):
            return None
        chunks = [
            ScheduledChunk(chunk.seq, chunk.end, 1, samples=True) for chunk in scheduled.chunks if _continues(chunk)
        ]
        if not chunks or not self._take_blocks(chunks):
            return None
        return SchedulerOutput(chunks)

    def _may_continue(self, scheduled: SchedulerOutput, now: float) -> bool:
        scheduler = self._scheduler
        running = scheduler.running()
        if scheduler.num_waiting and not self._must_wait(len(running)):
            return False
        if len(running) != sum(_is_running(chunk.seq) for chunk in scheduled.chunks):
            return False
        if any(seq.deadline_at is not None and seq.deadline_at <= now for seq in running):
            return False
        return self._runner.can_launch(scheduled)

    def _must_wait(self, num_running: int) -> bool:
        """Return whether no waiting sequence could start now: the batch is full, or blocks are as short as before."""
        if num_running >= self._scheduler.max_num_seqs:
            return True
        return self._scheduler.wait_forecast.is_short_of_blocks and self._blocks.num_frees == self._num_frees

    def _take_blocks(self, chunks: list[ScheduledChunk]) -> bool:
        """Allocate the block that each sequence needs; return False if that would need a preemption."""
        for chunk in chunks:
            if not self._blocks.can_append(chunk.seq, chunk.end):
                # Blocks that others took already are theirs: they need them in the next step anyway.
                return False
            self._blocks.append(chunk.seq, chunk.end)
        self._blocks.hold_windows(chunks)
        return True


def _continues(chunk: ScheduledChunk) -> bool:
    """Return whether a sequence has a token to compute behind this step, unless the step's token ends it."""
    return _is_running(chunk.seq) and chunk.end + 1 < chunk.seq.max_total_tokens


def _is_running(seq: Sequence) -> bool:
    return seq.state is SequenceState.RUNNING
