"""Scheduler: chooses the sequences of each step and updates the sequences from its output."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from operator import attrgetter
from pathlib import Path

from engine.forecast.output_forecast import OutputForecast
from engine.forecast.step_time import StepTimeModel
from engine.kv_cache.block_manager import BlockManager
from engine.lora.adapter_table import AdapterRead, AdapterTable
from engine.protocol import AbortState, AdapterReport, Add, Lane, LoadAdapter, SeqOutput, UnloadAdapter
from engine.sampling.grammar_compiler import GrammarDone, Grammars
from engine.scheduler.admission import Limits, SequenceAdmission
from engine.scheduler.arrival_forecast import ArrivalForecaster
from engine.scheduler.chunk_limit import ChunkLimit
from engine.scheduler.draft_allocation import add_drafts
from engine.scheduler.head_of_line import HeadOfLineBlocking
from engine.scheduler.lanes import LANES, LaneShares
from engine.scheduler.plan import StepDraft, next_chunk
from engine.scheduler.prompt_budget import PromptBudget
from engine.scheduler.sequence_table import SequenceTable
from engine.scheduler.waiting_admission import WaitingAdmission
from engine.step.acceptance import take_tokens
from engine.step.drafting import Drafter
from engine.step.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.step.sequence import Sequence, SequenceStage, SequenceState
from engine.step.step_output import SequenceResult, StepOutput
from engine.step.tally import CoreTotals

_ORDER = attrgetter("order")


def _importance(seq: Sequence) -> tuple[bool, tuple[int, int]]:
    """Sort key: the greatest is preempted first, batch before anything else."""
    return (seq.lane == "batch", seq.order)


def _lane_order(seq: Sequence) -> tuple[int, tuple[int, int]]:
    return (LANES.index(seq.lane), seq.order)


class Scheduler:
    """One token budget a step; running sequences first, decoding ones before chunks of prompts, then waiting ones.

    There are no phases: a chunk computes the next of the tokens its sequence has, one or many. When blocks run out
    the newest sequence of the lowest priority gives its blocks back and is computed again later.
    """

    def __init__(
        self,
        limits: Limits,
        blocks: BlockManager,
        *,
        forecast: OutputForecast,
        step_time: StepTimeModel,
        tally: CoreTotals,
        drafter: Drafter | None = None,
        grammars: Grammars | None = None,
        adapters: AdapterTable | None = None,
    ) -> None:
        self._limits = limits
        # Every decoding sequence must get its token in every step.
        self._max_num_seqs = min(limits.max_num_seqs, limits.max_num_batched_tokens)
        self._blocks = blocks
        self._forecast = forecast
        self._tally = tally
        self._drafter = drafter
        self._adapters = adapters or AdapterTable.without_places()
        self._admission = SequenceAdmission(limits, blocks, forecast, step_time)
        self._prompts = PromptBudget(
            LaneShares(),
            ChunkLimit(step_time, itl_target_s=limits.itl_target_s, slack_ratio=limits.prefill_slack_ratio),
        )
        blocked = HeadOfLineBlocking(max_passed=2 * self._max_num_seqs)
        self._sequence_table = SequenceTable(blocks, blocked, grammars, self._adapters)
        self._waiting_admission = WaitingAdmission(
            self._sequence_table,
            blocks,
            blocked,
            self._admission,
            self._prompts,
            tally,
            max_num_seqs=self._max_num_seqs,
        )
        self.wait_forecast = ArrivalForecaster(
            self._sequence_table,
            blocks,
            self._prompts,
            forecast,
            step_time,
            max_num_seqs=self._max_num_seqs,
            max_num_batched_tokens=limits.max_num_batched_tokens,
        )

    @property
    def num_running(self) -> int:
        """Sequences in the batch, which hold blocks."""
        return len(self._sequence_table.running)

    @property
    def num_waiting(self) -> int:
        """Sequences without blocks: preempted ones and those whose grammar is being compiled included."""
        return self._sequence_table.num_waiting

    @property
    def max_num_seqs(self) -> int:
        """Maximum number of sequences in a step."""
        return self._max_num_seqs

    @property
    def has_work(self) -> bool:
        """Return whether a step would compute something."""
        return self._sequence_table.has_work

    def running(self) -> list[Sequence]:
        """Return the sequences that hold blocks, in the order of admission."""
        return list(self._sequence_table.running.values())

    def waiting(self) -> list[Sequence]:
        """Return the sequences that wait, preempted ones included, lane by lane."""
        return list(self._sequence_table.waiting)

    def add(self, add: Add, received_at: float) -> None:
        """Queue a request, or end it at once when it can never be served. Raises SequenceTableError on an id in use."""
        self._sequence_table.check_id(add.seq_id)
        refusal = self._admission.refusal(add, self.num_waiting)
        if refusal is None and add.adapter is not None and self._adapters.find(add.adapter) is None:
            refusal = f"adapter {add.adapter!r} is not loaded"
        if refusal is None:
            self._refuse_hopeless(self._sequence_table.add(add, received_at), received_at)
        else:
            self._sequence_table.refuse(add.seq_id, refusal)

    def grammar_done(self, done: GrammarDone, now: float) -> None:
        """Queue the sequence whose grammar is compiled, or end it when that failed; one that was aborted is ignored."""
        seq = self._sequence_table.grammar_done(done, now)
        if seq is not None:
            self._refuse_hopeless(seq, now)

    def change_adapter(self, order: LoadAdapter | UnloadAdapter | AdapterRead, now: float) -> None:
        """Load an adapter, admit sequences to one that was read, or unload one under its deadline."""
        match order:
            case LoadAdapter():
                self._adapters.load(order.name, Path(order.path))
            case AdapterRead():
                self._adapters.read(order)
            case UnloadAdapter():
                in_use = self._adapters.unload(order.name)
                if in_use is not None:
                    self._sequence_table.hasten(in_use, now + order.deadline_s)

    def abort(self, seq_ids: SequenceOf[int], received_at: float, now: float) -> None:
        """End these sequences in whatever state they are; ids unknown or already ended are ignored."""
        self._sequence_table.abort(seq_ids, received_at, now)

    def schedule(self, now: float) -> SchedulerOutput:
        """Choose the sequences of the next step and give them their blocks; none when nothing can run."""
        self.wait_forecast.now = now
        self._sequence_table.drop_expired(now)
        plan = StepDraft(self._limits.max_num_batched_tokens)
        for seq in sorted(self._sequence_table.running.values(), key=_ORDER):
            if seq.num_uncomputed_tokens == 1:
                self._continue(seq, plan, now)
        self._share_out(plan, now)
        self.wait_forecast.is_short_of_blocks = plan.is_short_of_blocks
        # What a stored token makes again lies where its draft tokens would.
        if self._drafter is not None and not any(chunk.is_stored for chunk in plan.chunks.values()):
            add_drafts(self._drafter, plan, self._blocks, is_more_to_come=len(self._sequence_table.waiting) > 0)
        output = plan.output()
        self._blocks.hold_windows(output.chunks)
        return output

    def update_from_output(self, scheduled: SchedulerOutput, output: StepOutput, now: float) -> None:
        """Append what a step chose, free what ended, hash full blocks.

        Chunks whose sequence ended or was preempted meanwhile are dropped.
        """
        self._tally.steps += 1
        self._tally.adapter_steps += scheduled.has_adapters
        for chunk, result in zip(scheduled.chunks, output.results, strict=True):
            seq = chunk.seq
            if seq.state is not SequenceState.RUNNING or seq.num_computed_tokens != chunk.start:
                continue
            if result.error is not None:
                self._sequence_table.fail(seq, result.error, now)
            else:
                self._advance(chunk, result, output, now)

    def take_outputs(self) -> list[SeqOutput]:
        """Return the outputs since the last call, in order."""
        return self._sequence_table.take_outputs()

    def take_adapter_reports(self) -> list[AdapterReport]:
        """Return the changes of adapters since the last call."""
        return self._adapters.take_reports()

    def take_freed(self) -> list[tuple[int, AbortState, float]]:
        """Return the aborts since the last call: (seq_id, its state then, seconds from receipt to free blocks)."""
        return self._sequence_table.take_freed()

    def check_integrity(self) -> None:
        """Raise AssertionError unless queues, batch and blocks agree."""
        self._sequence_table.check_integrity()

    def _refuse_hopeless(self, seq: Sequence, now: float) -> None:
        """End a sequence that was just queued when by forecast its first token would come after its deadline."""
        if seq.deadline_at is None or seq.state is not SequenceState.WAITING:
            return
        self.wait_forecast.now = now
        first_token_s = self.wait_forecast.first_token_s(seq)
        if now + first_token_s > seq.deadline_at:
            left_s = seq.deadline_at - now
            error = (
                f"the deadline in {left_s:.2f} s would pass before the first token, expected in {first_token_s:.2f} s"
            )
            self._sequence_table.end(seq, "abort", now, error=error)

    def _continue(self, seq: Sequence, plan: StepDraft, now: float) -> None:
        """Schedule a running sequence's share of the step; without a free block, preempt the least important one."""
        if seq.state is not SequenceState.RUNNING or not plan.budget:
            return
        chunk = next_chunk(seq, plan.budget)
        while not self._blocks.can_append(seq, chunk.end):
            victim = max(self._sequence_table.running.values(), key=_importance)
            self._preempt(victim, plan, now)
            if victim is seq:
                return
        self._blocks.append(seq, chunk.end)
        plan.add(chunk)

    def _preempt(self, seq: Sequence, plan: StepDraft, now: float) -> None:
        plan.drop(seq)
        plan.has_preempted = plan.is_short_of_blocks = True
        self._sequence_table.preempt(seq, now)
        self._tally.preemptions += 1

    def _share_out(self, plan: StepDraft, now: float) -> None:
        """Divide the step's prompt tokens among the lanes, then offer what one left over to the others."""
        running = self._sequence_table.running
        prefilling = [seq for seq in running.values() if seq.num_uncomputed_tokens > 1]
        prefilling.sort(key=_lane_order)
        can_admit = not plan.has_preempted and len(running) < self._max_num_seqs
        waiting = self._sequence_table.waiting if can_admit and len(self._sequence_table.waiting) else None
        if not prefilling and waiting is None:
            return
        decoding = [chunk.seq for chunk in plan.chunks.values()]
        is_crowded = self._sequence_table.is_crowded
        grants = self._prompts.grants(plan.budget, decoding, prefilling, waiting, is_crowded=is_crowded)
        plan.budget = sum(grants.values())
        for shares in (grants, None):
            shares = shares or dict.fromkeys(LANES, plan.budget)
            for seq in prefilling:
                self._chunk(seq, plan, shares)
            if waiting is not None:
                self._waiting_admission.admit(plan, shares, now)
            if not plan.budget:
                return

    def _chunk(self, seq: Sequence, plan: StepDraft, grants: dict[Lane, int]) -> None:
        """Schedule the part of a running sequence's prompt that its lane's grant allows, beyond its planned part."""
        planned = plan.chunks.get(seq.seq_id)
        num_planned = planned.num_tokens if planned is not None else 0
        plan.drop(seq)
        chunk = next_chunk(seq, min(plan.budget, num_planned + grants[seq.lane]))
        grants[seq.lane] -= chunk.num_tokens - num_planned
        if chunk.num_tokens:
            plan.add(chunk)

    def _advance(self, chunk: ScheduledChunk, result: SequenceResult, output: StepOutput, now: float) -> None:
        """Move a sequence past its computed chunk and append what was sampled, up to where it stops."""
        seq = chunk.seq
        if not seq.num_output_tokens:
            seq.num_prefill_chunks += 1
            if result.token_ids:
                seq.stages.enter(SequenceStage.DECODE, now - output.later_s)
        token_ids, reason = take_tokens(seq, result.token_ids)
        num_drafted = len(chunk.draft_token_ids) + result.num_drafted
        if num_drafted:
            # What stands behind an answer's end counts for nothing.
            num_accepted = max(0, output.num_accepted(result) - (len(result.token_ids) - len(token_ids)))
            seq.num_drafted_tokens += num_drafted
            seq.num_accepted_tokens += num_accepted
            self._tally.drafted_tokens += num_drafted
            self._tally.accepted_tokens += num_accepted
        # Positions behind the accepted drafts hold keys of wrong tokens: they are never hashed and soon overwritten.
        seq.num_computed_tokens = chunk.end + max(0, len(token_ids) - 1)
        self._blocks.register(seq)
        self._blocks.shrink(seq)
        if not chunk.samples:
            return
        self._sequence_table.pending.release(seq.seq_id)
        self._tally.generation_tokens += len(token_ids)
        logprobs = None if result.logprobs is None else result.logprobs[: len(token_ids)]
        if reason is None:
            self._sequence_table.output(seq, token_ids, logprobs)
        elif reason == "error":
            self._sequence_table.fail(seq, "a token does not fit the grammar", now)
        else:
            self._forecast.observe(seq.lane, seq.num_output_tokens)
            if self._drafter is not None:
                self._drafter.ended(seq)
            self._sequence_table.end(seq, reason, now, token_ids=token_ids, logprobs=logprobs)
