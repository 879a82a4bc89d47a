"""Decides what each step computes, and carries every sequence from its arrival to exactly one end."""

from __future__ import annotations

import heapq
from collections.abc import Sequence as SequenceOf
from operator import attrgetter

from engine.core.admission import Admission, Limits
from engine.core.batch import RowResult, ScheduledBatch, ScheduledRow
from engine.core.block_manager import BlockManager
from engine.core.output_forecast import OutputForecast
from engine.core.pending_prefixes import PendingPrefixes
from engine.core.sequence import Sequence, SequenceState, Stage
from engine.core.step_time import StepTimeModel
from engine.core.tally import Tally
from engine.core.waiting import WaitingQueue
from engine.messages import AbortState, Add, FinishReason, SeqOutput, StageTimes, TokenLogprobs

_ORDER = attrgetter("order")
_NO_TIMES = StageTimes(queue_s=0.0, prefill_s=0.0, decode_s=0.0, num_prefill_chunks=0, num_cached_tokens=0)


class SchedulerError(RuntimeError):
    """The front broke the protocol; the core cannot trust its ids any more."""


class _Plan:
    """A step being put together: rows so far and tokens left."""

    def __init__(self, budget: int) -> None:
        self.rows: dict[int, ScheduledRow] = {}
        self.budget = budget
        self.has_preempted = False

    def add(self, row: ScheduledRow) -> None:
        self.rows[row.seq.seq_id] = row
        self.budget -= row.num_query_tokens

    def drop(self, seq: Sequence) -> None:
        row = self.rows.pop(seq.seq_id, None)
        if row is not None:
            self.budget += row.num_query_tokens


class Scheduler:
    """One token budget a step; running sequences first, decoding ones before chunks of prompts, then waiting ones.

    There are no phases: a row computes the next of the tokens its sequence has, one or many. When blocks run out the
    newest sequence of the lowest priority gives its blocks back and is computed again later.
    """

    def __init__(
        self,
        limits: Limits,
        blocks: BlockManager,
        *,
        forecast: OutputForecast,
        step_time: StepTimeModel,
        tally: Tally,
    ) -> None:
        self._limits = limits
        # Every decoding row must get its token in every step.
        self._max_num_rows = min(limits.max_num_rows, limits.step_token_budget)
        self._blocks = blocks
        self._forecast = forecast
        self._tally = tally
        self._admission = Admission(limits, blocks, forecast, step_time)
        self._waiting = WaitingQueue()
        self._running: dict[int, Sequence] = {}
        self._live: dict[int, Sequence] = {}
        self._pending = PendingPrefixes()
        self._deadlines: list[tuple[float, int]] = []
        self._num_arrivals = 0
        # The sequence that last did not fit, and how often blocks had come back then: no use to try before more do.
        self._blocked: tuple[int, int] | None = None
        self.is_short_of_blocks = False
        """Whether the last step left a sequence waiting for want of blocks, not of a row or of budget."""
        self._outputs: list[SeqOutput] = []
        self._freed: list[tuple[int, AbortState, float]] = []

    @property
    def num_running(self) -> int:
        """Sequences that hold blocks and a row."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences without blocks, preempted ones included."""
        return len(self._waiting)

    @property
    def max_num_rows(self) -> int:
        """Most rows a step can have."""
        return self._max_num_rows

    @property
    def has_work(self) -> bool:
        """Whether a step would compute something."""
        return bool(self._live)

    @property
    def num_prefill_tokens(self) -> int:
        """Known tokens still to be computed, apart from those of decoding rows."""
        running = (seq.num_uncomputed_tokens for seq in self._running.values())
        return self._waiting.num_tokens + sum(num for num in running if num > 1)

    def running(self) -> list[Sequence]:
        """The sequences that hold blocks, in the order of admission."""
        return list(self._running.values())

    def add(self, add: Add, received_at: float) -> None:
        """Queue a request, or end it at once when it can never be served. Raises SchedulerError on an id in use."""
        if add.seq_id in self._live:
            raise SchedulerError(f"sequence id {add.seq_id} is in use")
        refusal = self._admission.refusal(add, len(self._waiting))
        if refusal is not None:
            self._outputs.append(
                SeqOutput(seq_id=add.seq_id, token_ids=[], finish_reason="error", error=refusal, stages=_NO_TIMES)
            )
            return
        seq = Sequence.from_add(add, arrival_index=self._num_arrivals, received_at=received_at)
        self._num_arrivals += 1
        self._live[seq.seq_id] = seq
        self._waiting.push(seq)
        if seq.deadline_at is not None:
            heapq.heappush(self._deadlines, (seq.deadline_at, seq.seq_id))

    def abort(self, seq_ids: SequenceOf[int], received_at: float, now: float) -> None:
        """End these sequences in whatever state they are; ids unknown or already ended are ignored."""
        for seq_id in seq_ids:
            seq = self._live.get(seq_id)
            if seq is not None:
                self._freed.append((seq_id, seq.abort_state(), max(0.0, now - received_at)))
                self._end(seq, "abort", now)

    def schedule(self, now: float) -> ScheduledBatch:
        """Choose the rows of the next step and give them their blocks; empty when nothing can run."""
        self._drop_expired(now)
        self.is_short_of_blocks = False
        plan = _Plan(self._limits.step_token_budget)
        for seq in sorted(self._running.values(), key=lambda seq: (seq.num_uncomputed_tokens > 1, seq.order)):
            self._continue(seq, plan, now)
        if not plan.has_preempted:
            self._admit(plan, now)
        return ScheduledBatch(list(plan.rows.values()))

    def complete(self, batch: ScheduledBatch, results: SequenceOf[RowResult], now: float) -> None:
        """Take over what a step computed; rows whose sequence ended or was preempted meanwhile are dropped."""
        self._tally.steps += 1
        for row, result in zip(batch.rows, results, strict=True):
            seq = row.seq
            if seq.state is not SequenceState.RUNNING or seq.num_computed_tokens != row.start:
                continue
            if result.error is not None:
                self._end(seq, "error", now, error=result.error)
            else:
                self._advance(seq, row, result, now)

    def take_outputs(self) -> list[SeqOutput]:
        """Outputs since the last call, in order."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def take_freed(self) -> list[tuple[int, AbortState, float]]:
        """Aborts carried out since the last call: (seq_id, state it was in, seconds from receipt to blocks free)."""
        freed, self._freed = self._freed, []
        return freed

    def check_integrity(self) -> None:
        """Raise AssertionError unless queues, rows and blocks agree."""
        self._blocks.check_integrity(self._running.values())
        assert len(self._live) == len(self._running) + len(self._waiting), "a sequence is nowhere or twice"
        assert all(seq.state is SequenceState.RUNNING for seq in self._running.values())
        assert all(seq.state in (SequenceState.WAITING, SequenceState.PREEMPTED) for seq in self._waiting)
        assert not any(seq.block_table for seq in self._waiting), "a waiting sequence holds blocks"
        assert list(self._waiting) == sorted(self._waiting, key=_ORDER)
        assert self._running or not self._pending, "nobody computes a pending prefix"

    def _continue(self, seq: Sequence, plan: _Plan, now: float) -> None:
        """Give a running sequence its share of the step, taking blocks from the least important when none is free."""
        if seq.state is not SequenceState.RUNNING or not plan.budget:
            return
        row = self._row(seq, plan.budget)
        while not self._blocks.can_append(seq, row.end + len(row.draft_token_ids)):
            victim = max(self._running.values(), key=_ORDER)
            self._preempt(victim, plan, now)
            if victim is seq:
                return
        self._blocks.append(seq, row.end + len(row.draft_token_ids))
        plan.add(row)

    def _row(self, seq: Sequence, budget: int) -> ScheduledRow:
        num_tokens = min(seq.num_uncomputed_tokens, budget)
        return ScheduledRow(seq, seq.num_computed_tokens, num_tokens, samples=num_tokens == seq.num_uncomputed_tokens)

    def _preempt(self, seq: Sequence, plan: _Plan, now: float) -> None:
        """Take blocks and row away; what is hashed stays reusable, so little is computed twice if it is soon back."""
        plan.drop(seq)
        plan.has_preempted = self.is_short_of_blocks = True
        del self._running[seq.seq_id]
        self._pending.release(seq.seq_id)
        self._blocks.free(seq)
        seq.state = SequenceState.PREEMPTED
        seq.num_preemptions += 1
        seq.stages.enter(Stage.QUEUE, now)
        self._waiting.push(seq)
        self._tally.preemptions += 1

    def _admit(self, plan: _Plan, now: float) -> None:
        """Start waiting sequences in order; the first that does not fit holds back those behind it, so none starves."""
        if not len(self._waiting) or not plan.budget or len(self._running) >= self._max_num_rows:
            return
        reserved = self._admission.reserved_blocks(self._running.values())
        for seq in self._waiting.head(2 * self._max_num_rows):
            if not plan.budget or len(self._running) >= self._max_num_rows:
                return
            if self._is_still_blocked(seq):
                self.is_short_of_blocks = True
                return
            if self._admission.misses_deadline(seq, len(self._running), now):
                self._end(seq, "abort", now, error="the deadline would pass before the first token")
                continue
            prefix = self._blocks.find_prefix(seq)
            if self._waits_for_prefix(seq, len(prefix)):
                continue
            # An empty core starts anything that can be served at all; otherwise a wrong forecast could block for ever.
            if self._running and not self._admission.can_start(seq, prefix, reserved):
                self._blocked = (seq.seq_id, self._blocks.num_frees)
                self.is_short_of_blocks = True
                return
            self._start(seq, prefix, now)
            reserved += self._admission.reserved_blocks((seq,))
            plan.add(self._row(seq, plan.budget))

    def _is_still_blocked(self, seq: Sequence) -> bool:
        """Whether this sequence did not fit and no blocks came back since; spares looking a long prompt up again."""
        return bool(self._running) and self._blocked == (seq.seq_id, self._blocks.num_frees)

    def _waits_for_prefix(self, seq: Sequence, num_found: int) -> bool:
        """Whether the first block to compute is being computed by a running sequence right now."""
        if not len(self._pending) or num_found >= self._blocks.num_shareable_blocks(seq):
            return False
        return self._blocks.digest(seq, num_found) in self._pending

    def _start(self, seq: Sequence, prefix: list[int], now: float) -> None:
        self._waiting.remove(seq)
        self._blocks.allocate(seq, prefix, self._admission.growth_tokens(seq))
        if self._blocks.enable_prefix_cache:
            shareable = range(len(prefix), self._blocks.num_shareable_blocks(seq))
            self._pending.claim(seq.seq_id, [self._blocks.digest(seq, index) for index in shareable])
        if seq.state is SequenceState.WAITING:
            seq.num_cached_tokens = seq.num_computed_tokens
            self._tally.prompt_tokens += seq.num_prompt_tokens
            if self._blocks.enable_prefix_cache:
                self._tally.prefix_query_tokens += seq.num_prompt_tokens
                self._tally.prefix_hit_tokens += seq.num_cached_tokens
        seq.state = SequenceState.RUNNING
        seq.stages.enter(Stage.DECODE if seq.num_output_tokens else Stage.PREFILL, now)
        self._running[seq.seq_id] = seq

    def _advance(self, seq: Sequence, row: ScheduledRow, result: RowResult, now: float) -> None:
        """Move a sequence past its computed row and append what was sampled, up to where it stops."""
        num_accepted = max(0, len(result.token_ids) - 1)
        if row.draft_token_ids:
            seq.num_drafted_tokens += len(row.draft_token_ids)
            seq.num_accepted_tokens += num_accepted
            self._tally.drafted_tokens += len(row.draft_token_ids)
            self._tally.accepted_tokens += num_accepted
        if not seq.num_output_tokens:
            seq.num_prefill_chunks += 1
            if result.token_ids:
                seq.stages.enter(Stage.DECODE, now)
        token_ids, reason = self._accept(seq, result.token_ids)
        seq.num_computed_tokens = row.end + (num_accepted if reason is None else 0)
        self._blocks.register(seq)
        if not row.samples:
            return
        self._pending.release(seq.seq_id)
        self._tally.generation_tokens += len(token_ids)
        logprobs = None if result.logprobs is None else result.logprobs[: len(token_ids)]
        if reason is None:
            self._outputs.append(SeqOutput(seq_id=seq.seq_id, token_ids=token_ids, logprobs=logprobs))
            return
        self._forecast.observe(seq.lane, seq.num_output_tokens)
        self._end(seq, reason, now, token_ids=token_ids, logprobs=logprobs)

    def _accept(self, seq: Sequence, token_ids: list[int]) -> tuple[list[int], FinishReason | None]:
        """Append sampled tokens until one ends the sequence; the tokens appended and why it ended."""
        params = seq.params
        for count, token_id in enumerate(token_ids, start=1):
            seq.token_ids.append(token_id)
            if token_id in params.stop_token_ids and seq.num_output_tokens >= params.min_tokens:
                return token_ids[:count], "stop"
            if seq.num_output_tokens >= params.max_tokens:
                return token_ids[:count], "length"
        return token_ids, None

    def _drop_expired(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            _, seq_id = heapq.heappop(self._deadlines)
            seq = self._live.get(seq_id)
            if seq is not None:
                self._end(seq, "abort", now, error="the deadline has passed")

    def _end(
        self,
        seq: Sequence,
        reason: FinishReason,
        now: float,
        *,
        token_ids: list[int] | None = None,
        logprobs: list[TokenLogprobs] | None = None,
        error: str | None = None,
    ) -> None:
        """The only way out: leave queue or row, give blocks back, report the end once."""
        abort_state = seq.abort_state() if reason == "abort" else None
        if seq.state is SequenceState.RUNNING:
            del self._running[seq.seq_id]
            self._pending.release(seq.seq_id)
            self._blocks.free(seq)
        else:
            assert seq.state is not SequenceState.FINISHED
            self._waiting.remove(seq)
        seq.state = SequenceState.FINISHED
        seq.stages.enter(Stage.DECODE, now)
        del self._live[seq.seq_id]
        self._outputs.append(
            SeqOutput(
                seq_id=seq.seq_id,
                token_ids=token_ids or [],
                logprobs=logprobs,
                finish_reason=reason,
                error=error,
                abort_state=abort_state,
                stages=seq.stage_times(),
            )
        )
