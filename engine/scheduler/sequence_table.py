"""Place of every sequence in the core: the only entry, the moves between queues, and the only exit."""

from __future__ import annotations

import heapq
from collections.abc import Sequence as SequenceOf
from typing import Literal

from engine.kv_cache.block_manager import BlockManager
from engine.kv_cache.expected_prefixes import ExpectedPrefixes
from engine.kv_cache.pending_prefixes import PendingPrefixes
from engine.lora.adapter_table import AdapterTable, LoadedAdapter
from engine.protocol import AbortState, Add, FinishReason, SeqOutput, StageTimes, TokenLogprobs
from engine.sampling.grammar import GrammarError
from engine.sampling.grammar_compiler import GrammarDone, Grammars
from engine.scheduler.arrivals import Arrivals
from engine.scheduler.head_of_line import HeadOfLineBlocking
from engine.scheduler.lanes import PATIENT_LANES
from engine.scheduler.waiting import WaitingLanes
from engine.step.sequence import Sequence, SequenceStage, SequenceState

_NO_TIMES = StageTimes(queue_s=0.0, prefill_s=0.0, decode_s=0.0, num_prefill_chunks=0, num_cached_tokens=0)


class SequenceTableError(RuntimeError):
    """The front broke the protocol; the core cannot trust its ids any more."""


class SequenceTable:
    """Table of all sequences from arrival to exactly one end, at which their blocks are released.

    `running` and `waiting` may be read; only the methods of this class move sequences.
    """

    def __init__(
        self, blocks: BlockManager, blocked: HeadOfLineBlocking, grammars: Grammars | None, adapters: AdapterTable
    ) -> None:
        self.waiting = WaitingLanes()
        self.running: dict[int, Sequence] = {}
        """Sequences in the batch, which hold blocks, by id in the order of admission."""
        self.pending = PendingPrefixes()
        self.arrivals = Arrivals()
        self._blocks = blocks
        self._blocked = blocked
        self._expected = ExpectedPrefixes(blocks, self.pending)
        self._grammars = grammars
        self._adapters = adapters
        self._compiling: dict[int, Sequence] = {}
        self._live: dict[int, Sequence] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._num_arrivals = 0
        self._outputs: list[SeqOutput] = []
        self._freed: list[tuple[int, AbortState, float]] = []

    @property
    def num_waiting(self) -> int:
        """Sequences without blocks: preempted ones and those whose grammar is being compiled included."""
        return len(self.waiting) + len(self._compiling)

    @property
    def is_crowded(self) -> bool:
        """True if several patient prompts are not computed yet."""
        waiting = sum(len(self.waiting.of(lane)) for lane in PATIENT_LANES)
        running = [seq for seq in self.running.values() if seq.lane in PATIENT_LANES and seq.num_uncomputed_tokens > 1]
        return waiting + len(running) > 1

    @property
    def has_work(self) -> bool:
        """Return whether a step would compute something."""
        return len(self._live) > len(self._compiling)

    def check_id(self, seq_id: int) -> None:
        """Raise SequenceTableError if the id belongs to a live sequence."""
        if seq_id in self._live:
            raise SequenceTableError(f"sequence id {seq_id} is in use")

    def refuse(self, seq_id: int, reason: str) -> None:
        """Report the end of a request that never became a sequence."""
        self._outputs.append(
            SeqOutput(seq_id=seq_id, token_ids=[], finish_reason="error", error=reason, stages=_NO_TIMES)
        )

    def add(self, add: Add, received_at: float) -> Sequence:
        """Take a request in: to its queue, or to the compiler of grammars first."""
        adapter = None if add.adapter is None else self._adapters.acquire(add.adapter)
        seq = Sequence.from_add(add, arrival_index=self._num_arrivals, received_at=received_at, adapter=adapter)
        self._num_arrivals += 1
        self._live[seq.seq_id] = seq
        if seq.deadline_at is not None:
            heapq.heappush(self._deadlines, (seq.deadline_at, seq.seq_id))
        if add.grammar is None:
            self._queue_new(seq, received_at)
        else:
            self._compile(seq, add.grammar, received_at)
        return seq

    def grammar_done(self, done: GrammarDone, now: float) -> Sequence | None:
        """Queue the sequence whose grammar is compiled, or end it when that failed; one that was aborted is ignored."""
        seq = self._compiling.get(done.seq_id)
        if seq is None:
            return None
        if done.state is None:
            self.end(seq, "error", now, error=done.error, fault="grammar")
            return None
        try:
            if seq.num_resumed_tokens:
                done.state.accept(seq.token_ids[seq.num_prompt_tokens :])
        except GrammarError as error:
            self.end(seq, "error", now, error=str(error), fault="grammar")
            return None
        del self._compiling[seq.seq_id]
        seq.grammar = done.state
        seq.state = SequenceState.WAITING
        self._queue_new(seq, now)
        return seq

    def start(self, seq: Sequence, now: float) -> None:
        """Move a waiting sequence, which got its blocks, to the running ones."""
        self._unqueue(seq)
        self._blocked.started(seq)
        seq.state = SequenceState.RUNNING
        seq.stages.enter(SequenceStage.DECODE if seq.num_output_tokens else SequenceStage.PREFILL, now)
        self.running[seq.seq_id] = seq

    def preempt(self, seq: Sequence, now: float) -> None:
        """Release a sequence's blocks and its part of the batch; hashed blocks stay reusable."""
        self._give_back(seq)
        seq.state = SequenceState.PREEMPTED
        seq.num_preemptions += 1
        seq.stages.enter(SequenceStage.QUEUE, now)
        self._queue(seq)

    def output(self, seq: Sequence, token_ids: list[int], logprobs: list[TokenLogprobs] | None) -> None:
        """Report tokens of a sequence that goes on."""
        self._outputs.append(SeqOutput(seq_id=seq.seq_id, token_ids=token_ids, logprobs=logprobs))

    def abort(self, seq_ids: SequenceOf[int], received_at: float, now: float) -> None:
        """End these sequences in whatever state they are; ids unknown or already ended are ignored."""
        for seq_id in seq_ids:
            seq = self._live.get(seq_id)
            if seq is not None:
                self._freed.append((seq_id, seq.abort_state(), max(0.0, now - received_at)))
                self.end(seq, "abort", now)

    def hasten(self, adapter: LoadedAdapter, deadline_at: float) -> None:
        """Set a deadline for the sequences of an adapter, unless they have an earlier one."""
        for seq in self._live.values():
            if seq.adapter is adapter and (seq.deadline_at is None or seq.deadline_at > deadline_at):
                seq.deadline_at = deadline_at
                heapq.heappush(self._deadlines, (deadline_at, seq.seq_id))

    def drop_expired(self, now: float) -> None:
        """End the sequences whose deadline has passed."""
        while self._deadlines and self._deadlines[0][0] <= now:
            _, seq_id = heapq.heappop(self._deadlines)
            seq = self._live.get(seq_id)
            if seq is not None and seq.deadline_at is not None and seq.deadline_at <= now:
                self.expire(seq, now, now - seq.deadline_at, "the deadline has passed")

    def expire(self, seq: Sequence, now: float, late_s: float, error: str) -> None:
        """End a sequence for its deadline; counted like the abort of a client, `late_s` after it was due."""
        self._freed.append((seq.seq_id, seq.abort_state(), late_s))
        self.end(seq, "abort", now, error=error)

    def fail(self, seq: Sequence, error: str, now: float) -> None:
        """End a sequence that could not be computed; a grammar that failed is the request's fault."""
        failure = seq.grammar.failure if seq.grammar is not None else None
        if failure is None:
            self.end(seq, "error", now, error=error)
        else:
            self.end(seq, "error", now, error=failure, fault="grammar")

    def end(
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
        """End a sequence: remove it from queue or batch, free its blocks, report the end once.

        There is no other exit.
        """
        abort_state = seq.abort_state() if reason == "abort" else None
        if seq.state is SequenceState.RUNNING:
            self._give_back(seq)
        elif seq.state is SequenceState.GRAMMAR:
            del self._compiling[seq.seq_id]
        else:
            assert seq.state is not SequenceState.FINISHED
            self._unqueue(seq)
            self._blocked.forget(seq)
        seq.state = SequenceState.FINISHED
        seq.stages.enter(SequenceStage.DECODE, now)
        del self._live[seq.seq_id]
        if seq.adapter is not None:
            self._adapters.release(seq.adapter)
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

    def take_outputs(self) -> list[SeqOutput]:
        """Return the outputs since the last call, in order."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def take_freed(self) -> list[tuple[int, AbortState, float]]:
        """Return the aborts since the last call: (seq_id, its state then, seconds from receipt to free blocks)."""
        freed, self._freed = self._freed, []
        return freed

    def check_integrity(self) -> None:
        """Raise AssertionError unless queues, batch and blocks agree."""
        self._blocks.check_integrity(self.running.values())
        num_known = len(self.running) + len(self.waiting) + len(self._compiling)
        assert len(self._live) == num_known, "a sequence is nowhere or twice"
        assert all(seq.state is SequenceState.GRAMMAR for seq in self._compiling.values())
        assert all(seq.state is SequenceState.RUNNING for seq in self.running.values())
        assert all(seq.state in (SequenceState.WAITING, SequenceState.PREEMPTED) for seq in self.waiting)
        assert not any(seq.block_table for seq in self.waiting), "a waiting sequence holds blocks"
        self.waiting.check_integrity()
        assert self.running or not self.pending, "no sequence computes a pending prefix"
        assert len(self.waiting) or not self._expected, "no sequence waits with an expected prefix"

    def _compile(self, seq: Sequence, grammar: str, now: float) -> None:
        """Start the compilation of a new sequence's grammar; `grammar_done` follows."""
        seq.state = SequenceState.GRAMMAR
        self._compiling[seq.seq_id] = seq
        if self._grammars is None:
            self.grammar_done(GrammarDone(seq.seq_id, None, "this engine serves no grammars"), now)
        else:
            self._grammars.request(seq.seq_id, grammar)

    def _queue_new(self, seq: Sequence, now: float) -> None:
        self._queue(seq)
        self.arrivals.observe(seq.lane, seq.num_expected_uncached_tokens, now)

    def _queue(self, seq: Sequence) -> None:
        self._expected.enter(seq)
        self.waiting.push(seq)

    def _unqueue(self, seq: Sequence) -> None:
        self.waiting.remove(seq)
        self._expected.leave(seq)

    def _give_back(self, seq: Sequence) -> None:
        """Leave the batch, and release the blocks and the reservation of blocks under computation."""
        del self.running[seq.seq_id]
        self.pending.release(seq.seq_id)
        self._blocks.free(seq)
