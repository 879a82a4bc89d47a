"""Decides what each step computes, and carries every sequence from its arrival to exactly one end."""

from __future__ import annotations

import heapq
from collections.abc import Sequence as SequenceOf
from operator import attrgetter
from typing import Literal

from engine.core.acceptance import take_tokens
from engine.core.admission import Admission, Limits
from engine.core.batch import RowResult, ScheduledBatch, ScheduledRow
from engine.core.block_manager import BlockManager
from engine.core.blocked_heads import BlockedHeads
from engine.core.chunk_limit import ChunkLimit
from engine.core.draft_rows import add_drafts
from engine.core.drafting import Drafter
from engine.core.grammar_compiler import GrammarDone, Grammars
from engine.core.lanes import LANES, LaneShares
from engine.core.output_forecast import OutputForecast
from engine.core.pending_prefixes import PendingPrefixes
from engine.core.plan import Plan
from engine.core.prompt_budget import PromptBudget
from engine.core.sequence import Sequence, SequenceState, Stage
from engine.core.step_time import StepTimeModel
from engine.core.tally import Tally
from engine.core.wait_forecast import Backlog
from engine.core.waiting import WaitingLanes
from engine.messages import AbortState, Add, FinishReason, Lane, SeqOutput, StageTimes, TokenLogprobs

_ORDER = attrgetter("order")
_KEPT_ROWS_DIVISOR = 16
"""One row in so many is kept for interactive prompts."""
_NO_TIMES = StageTimes(queue_s=0.0, prefill_s=0.0, decode_s=0.0, num_prefill_chunks=0, num_cached_tokens=0)


def _importance(seq: Sequence) -> tuple[bool, tuple[int, int]]:
    """Sort key: the greatest is preempted first, batch before anything else."""
    return (seq.lane == "batch", seq.order)


def _lane_order(seq: Sequence) -> tuple[int, tuple[int, int]]:
    return (LANES.index(seq.lane), seq.order)


class SchedulerError(RuntimeError):
    """The front broke the protocol; the core cannot trust its ids any more."""


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
        drafter: Drafter | None = None,
        grammars: Grammars | None = None,
    ) -> None:
        self._limits = limits
        # Every decoding row must get its token in every step.
        self._max_num_rows = min(limits.max_num_rows, limits.step_token_budget)
        self._blocks = blocks
        self._forecast = forecast
        self._tally = tally
        self._drafter = drafter
        self._admission = Admission(limits, blocks, forecast, step_time)
        self._grammars = grammars
        self._compiling: dict[int, Sequence] = {}
        self._prompts = PromptBudget(
            LaneShares(),
            ChunkLimit(step_time, itl_target_s=limits.itl_target_s, slack_ratio=limits.prefill_slack_ratio),
        )
        self._waiting = WaitingLanes()
        self._running: dict[int, Sequence] = {}
        self._live: dict[int, Sequence] = {}
        self._pending = PendingPrefixes()
        self._deadlines: list[tuple[float, int]] = []
        self._num_arrivals = 0
        self._blocked = BlockedHeads(max_passed=2 * self._max_num_rows)
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
        """Sequences without blocks: preempted ones and those whose grammar is being compiled included."""
        return len(self._waiting) + len(self._compiling)

    @property
    def max_num_rows(self) -> int:
        """Most rows a step can have."""
        return self._max_num_rows

    @property
    def has_work(self) -> bool:
        """Whether a step would compute something."""
        return len(self._live) > len(self._compiling)

    @property
    def num_prefill_tokens(self) -> int:
        """Known tokens still to be computed, apart from those of decoding rows."""
        running = (seq.num_uncomputed_tokens for seq in self._running.values())
        return self._waiting.num_tokens + sum(num for num in running if num > 1)

    def backlogs(self) -> dict[Lane, Backlog]:
        """What each lane has in the core; sequences whose grammar is being compiled are not counted."""
        running: dict[Lane, list[Sequence]] = {lane: [] for lane in LANES}
        for seq in self._running.values():
            running[seq.lane].append(seq)
        return {
            lane: Backlog(
                num_running=len(running[lane]),
                num_waiting=len(self._waiting.of(lane)),
                num_tokens=self._waiting.of(lane).num_tokens
                + sum(seq.num_uncomputed_tokens for seq in running[lane] if seq.num_uncomputed_tokens > 1),
            )
            for lane in LANES
        }

    def prompt_limit(self, lane: Lane) -> int:
        """Prompt tokens that a step may hold beside the rows that decode now, for prompts of this lane."""
        decoding = [seq for seq in self._running.values() if seq.num_uncomputed_tokens == 1]
        limit = self._prompts.limit(decoding, 0, is_urgent=lane == "interactive")
        return self._limits.step_token_budget if limit is None else limit

    def running(self) -> list[Sequence]:
        """The sequences that hold blocks, in the order of admission."""
        return list(self._running.values())

    def add(self, add: Add, received_at: float) -> None:
        """Queue a request, or end it at once when it can never be served. Raises SchedulerError on an id in use."""
        if add.seq_id in self._live:
            raise SchedulerError(f"sequence id {add.seq_id} is in use")
        refusal = self._admission.refusal(add, self.num_waiting)
        if refusal is not None:
            self._outputs.append(
                SeqOutput(seq_id=add.seq_id, token_ids=[], finish_reason="error", error=refusal, stages=_NO_TIMES)
            )
            return
        seq = Sequence.from_add(add, arrival_index=self._num_arrivals, received_at=received_at)
        self._num_arrivals += 1
        self._live[seq.seq_id] = seq
        if seq.deadline_at is not None:
            heapq.heappush(self._deadlines, (seq.deadline_at, seq.seq_id))
        if add.grammar is None:
            self._waiting.push(seq)
        else:
            self._compile(seq, add.grammar, received_at)

    def grammar_done(self, done: GrammarDone, now: float) -> None:
        """Queue the sequence whose grammar is compiled, or end it when that failed; one that was aborted is ignored."""
        seq = self._compiling.get(done.seq_id)
        if seq is None:
            return
        if done.state is None:
            self._end(seq, "error", now, error=done.error, fault="grammar")
            return
        del self._compiling[seq.seq_id]
        seq.grammar = done.state
        seq.state = SequenceState.WAITING
        self._waiting.push(seq)

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
        plan = Plan(self._limits.step_token_budget)
        for seq in sorted(self._running.values(), key=_ORDER):
            if seq.num_uncomputed_tokens == 1:
                self._continue(seq, plan, now)
        self._share_out(plan, now)
        if self._drafter is not None:
            add_drafts(self._drafter, plan, self._blocks, self._admission.growth_tokens)
        return ScheduledBatch(list(plan.rows.values()))

    def complete(self, batch: ScheduledBatch, results: SequenceOf[RowResult], now: float) -> None:
        """Take over what a step computed; rows whose sequence ended or was preempted meanwhile are dropped."""
        self._tally.steps += 1
        for row, result in zip(batch.rows, results, strict=True):
            seq = row.seq
            if seq.state is not SequenceState.RUNNING or seq.num_computed_tokens != row.start:
                continue
            if result.error is not None:
                self._fail(seq, result.error, now)
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
        num_known = len(self._running) + len(self._waiting) + len(self._compiling)
        assert len(self._live) == num_known, "a sequence is nowhere or twice"
        assert all(seq.state is SequenceState.GRAMMAR for seq in self._compiling.values())
        assert all(seq.state is SequenceState.RUNNING for seq in self._running.values())
        assert all(seq.state in (SequenceState.WAITING, SequenceState.PREEMPTED) for seq in self._waiting)
        assert not any(seq.block_table for seq in self._waiting), "a waiting sequence holds blocks"
        self._waiting.check_integrity()
        assert self._running or not self._pending, "nobody computes a pending prefix"

    def _compile(self, seq: Sequence, grammar: str, now: float) -> None:
        """Have a new sequence's grammar compiled; `grammar_done` follows."""
        seq.state = SequenceState.GRAMMAR
        self._compiling[seq.seq_id] = seq
        if self._grammars is None:
            self.grammar_done(GrammarDone(seq.seq_id, None, "this engine serves no grammars"), now)
        else:
            self._grammars.request(seq.seq_id, grammar)

    def _continue(self, seq: Sequence, plan: Plan, now: float) -> None:
        """Give a running sequence its share of the step, taking blocks from the least important when none is free."""
        if seq.state is not SequenceState.RUNNING or not plan.budget:
            return
        row = self._row(seq, plan.budget)
        while not self._blocks.can_append(seq, row.end):
            victim = max(self._running.values(), key=_importance)
            self._preempt(victim, plan, now)
            if victim is seq:
                return
        self._blocks.append(seq, row.end)
        plan.add(row)

    def _share_out(self, plan: Plan, now: float) -> None:
        """Give the lanes their shares of the step's prompt tokens, then what one left over to whoever can use it."""
        prefilling = [seq for seq in self._running.values() if seq.num_uncomputed_tokens > 1]
        prefilling.sort(key=_lane_order)
        can_admit = not plan.has_preempted and len(self._running) < self._max_num_rows
        waiting = self._waiting if can_admit and len(self._waiting) else None
        if not prefilling and waiting is None:
            return
        decoding = [row.seq for row in plan.rows.values()]
        grants = self._prompts.grants(plan.budget, decoding, prefilling, waiting)
        plan.budget = sum(grants.values())
        for shares in (grants, None):
            shares = shares or dict.fromkeys(LANES, plan.budget)
            for seq in prefilling:
                self._chunk(seq, plan, shares)
            if waiting is not None:
                self._admit(plan, shares, now)
            if not plan.budget:
                return

    def _chunk(self, seq: Sequence, plan: Plan, grants: dict[Lane, int]) -> None:
        """Let a running sequence compute as much of its prompt as its lane may, on top of what it has in the plan."""
        planned = plan.rows.get(seq.seq_id)
        num_planned = planned.num_tokens if planned is not None else 0
        plan.drop(seq)
        row = self._row(seq, min(plan.budget, num_planned + grants[seq.lane]))
        grants[seq.lane] -= row.num_tokens - num_planned
        if row.num_tokens:
            plan.add(row)

    def _row(self, seq: Sequence, budget: int) -> ScheduledRow:
        num_tokens = min(seq.num_uncomputed_tokens, budget)
        return ScheduledRow(seq, seq.num_computed_tokens, num_tokens, samples=num_tokens == seq.num_uncomputed_tokens)

    def _preempt(self, seq: Sequence, plan: Plan, now: float) -> None:
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

    def _admit(self, plan: Plan, grants: dict[Lane, int], now: float) -> None:
        """Start waiting sequences: lanes in turn, each in its own order.

        The first of a lane that does not fit holds back those behind it and the lanes behind its own, so none starves.
        """
        reserved = self._admission.reserved_blocks(self._running.values())
        overdue = self._blocked.overdue()
        lanes = LANES if overdue is None else (overdue,)
        heads = {lane: iter(self._waiting.of(lane).head(2 * self._max_num_rows)) for lane in lanes}
        while plan.budget:
            open_lanes = [lane for lane in heads if grants[lane] and self._has_row_for(lane)]
            if not open_lanes:
                return
            lane = self._prompts.next_turn(open_lanes)
            seq = next(heads[lane], None)
            if seq is None:
                del heads[lane]
                continue
            outcome = self._try_start(seq, reserved, now)
            if outcome == "blocked":
                self.is_short_of_blocks = True
                heads = {other: heads[other] for other in LANES[: LANES.index(lane)] if other in heads}
            elif outcome == "started":
                reserved += self._admission.reserved_blocks((seq,))
                row = self._row(seq, min(plan.budget, grants[lane]))
                grants[lane] -= row.num_tokens
                plan.add(row)

    def _has_row_for(self, lane: Lane) -> bool:
        """Whether a row is free for the lane; a few are kept for the next short prompt."""
        kept = 0 if lane == "interactive" else self._max_num_rows // _KEPT_ROWS_DIVISOR
        return len(self._running) + kept < self._max_num_rows

    def _try_start(self, seq: Sequence, reserved: int, now: float) -> Literal["started", "passed", "blocked"]:
        """Start a waiting sequence; or pass it over, because it ended or waits for a prefix; or find that it lacks
        blocks beside the `reserved` ones."""
        if self._running and self._blocked.is_still_blocked(seq, self._blocks.num_frees):
            return "blocked"
        if self._admission.misses_deadline(seq, len(self._running), now):
            self._end(seq, "abort", now, error="the deadline would pass before the first token")
            return "passed"
        prefix = self._blocks.find_prefix(seq)
        if self._waits_for_prefix(seq, len(prefix)):
            return "passed"
        # An empty core starts anything that can be served at all; otherwise a wrong forecast could block for ever.
        if self._running and not self._admission.can_start(seq, prefix, reserved):
            self._blocked.note(seq, self._blocks.num_frees)
            return "blocked"
        self._start(seq, prefix, now)
        self._blocked.started(seq)
        return "started"

    def _waits_for_prefix(self, seq: Sequence, num_found: int) -> bool:
        """Whether the first block to compute is being computed by a running sequence right now."""
        if not len(self._pending) or num_found >= self._blocks.num_shareable_blocks(seq):
            return False
        return self._blocks.digest(seq, num_found) in self._pending

    def _start(self, seq: Sequence, prefix: list[int], now: float) -> None:
        self._waiting.remove(seq)
        self._blocks.allocate(seq, prefix, self._admission.room_tokens(seq))
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

    def _fail(self, seq: Sequence, error: str, now: float) -> None:
        """End a sequence that could not be computed; a grammar that failed is the request's fault."""
        failure = seq.grammar.failure if seq.grammar is not None else None
        if failure is None:
            self._end(seq, "error", now, error=error)
        else:
            self._end(seq, "error", now, error=failure, fault="grammar")

    def _advance(self, seq: Sequence, row: ScheduledRow, result: RowResult, now: float) -> None:
        """Move a sequence past its computed row and append what was sampled, up to where it stops."""
        if not seq.num_output_tokens:
            seq.num_prefill_chunks += 1
            if result.token_ids:
                seq.stages.enter(Stage.DECODE, now)
        token_ids, reason = take_tokens(seq, result.token_ids)
        num_accepted = max(0, len(token_ids) - 1)
        if row.draft_token_ids:
            seq.num_drafted_tokens += len(row.draft_token_ids)
            seq.num_accepted_tokens += num_accepted
            self._tally.drafted_tokens += len(row.draft_token_ids)
            self._tally.accepted_tokens += num_accepted
        # Positions behind the accepted drafts hold keys of wrong tokens: they are never hashed and soon overwritten.
        seq.num_computed_tokens = row.end + num_accepted
        self._blocks.register(seq)
        self._blocks.shrink(seq)
        if not row.samples:
            return
        self._pending.release(seq.seq_id)
        self._tally.generation_tokens += len(token_ids)
        logprobs = None if result.logprobs is None else result.logprobs[: len(token_ids)]
        if reason is None:
            self._outputs.append(SeqOutput(seq_id=seq.seq_id, token_ids=token_ids, logprobs=logprobs))
            return
        if reason == "error":
            self._fail(seq, "a token does not fit the grammar", now)
            return
        self._forecast.observe(seq.lane, seq.num_output_tokens)
        self._end(seq, reason, now, token_ids=token_ids, logprobs=logprobs)

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
        fault: Literal["grammar"] | None = None,
    ) -> None:
        """The only way out: leave queue or row, give blocks back, report the end once."""
        abort_state = seq.abort_state() if reason == "abort" else None
        if seq.state is SequenceState.RUNNING:
            del self._running[seq.seq_id]
            self._pending.release(seq.seq_id)
            self._blocks.free(seq)
        elif seq.state is SequenceState.GRAMMAR:
            del self._compiling[seq.seq_id]
        else:
            assert seq.state is not SequenceState.FINISHED
            self._waiting.remove(seq)
            self._blocked.forget(seq)
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
                fault=fault,
                abort_state=abort_state,
                stages=seq.stage_times(),
            )
        )
