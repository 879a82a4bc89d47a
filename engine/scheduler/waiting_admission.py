"""Start of waiting sequences: which lane's turn it is, and whether its first sequence fits."""

from __future__ import annotations

from typing import Literal

from engine.kv_cache.block_manager import BlockManager
from engine.protocol import Lane
from engine.scheduler.admission import SequenceAdmission
from engine.scheduler.head_of_line import HeadOfLineBlocking
from engine.scheduler.lanes import LANES
from engine.scheduler.plan import StepDraft, next_chunk
from engine.scheduler.prompt_budget import PromptBudget
from engine.scheduler.sequence_table import SequenceTable
from engine.step.sequence import Sequence, SequenceState
from engine.step.tally import CoreTotals

_RESERVED_SEQS_DIVISOR = 16
"""Reciprocal of the share of sequences reserved for interactive prompts."""


class WaitingAdmission:
    """Start of waiting sequences: lanes in turn, each in its own order.

    The first sequence of a lane that does not fit holds back those behind it and the lanes behind its own. So none
    starves.
    """

    def __init__(
        self,
        sequence_table: SequenceTable,
        blocks: BlockManager,
        blocked: HeadOfLineBlocking,
        admission: SequenceAdmission,
        prompts: PromptBudget,
        tally: CoreTotals,
        *,
        max_num_seqs: int,
    ) -> None:
        self._sequence_table = sequence_table
        self._blocks = blocks
        self._blocked = blocked
        self._admission = admission
        self._prompts = prompts
        self._tally = tally
        self._max_num_seqs = max_num_seqs

    def admit(self, plan: StepDraft, grants: dict[Lane, int], now: float) -> None:
        """Start what has a turn, room in the batch, blocks and a share of the step, and plan its first chunk."""
        reserved = self._admission.reserved_blocks(self._sequence_table.running.values())
        overdue = self._blocked.overdue()
        lanes = LANES if overdue is None else (overdue,)
        heads = {lane: iter(self._sequence_table.waiting.of(lane).head(2 * self._max_num_seqs)) for lane in lanes}
        while plan.budget:
            open_lanes = [lane for lane in heads if grants[lane] and self._has_room_for(lane)]
            if not open_lanes:
                return
            lane = self._prompts.next_turn(open_lanes)
            seq = next(heads[lane], None)
            if seq is None:
                del heads[lane]
                continue
            outcome = self._try_start(seq, reserved, now)
            if outcome == "blocked":
                plan.is_short_of_blocks = True
                heads = {other: heads[other] for other in LANES[: LANES.index(lane)] if other in heads}
            elif outcome == "started":
                reserved += self._admission.reserved_blocks((seq,))
                chunk = next_chunk(seq, min(plan.budget, grants[lane]))
                grants[lane] -= chunk.num_tokens
                plan.add(chunk)

    def _has_room_for(self, lane: Lane) -> bool:
        """Return whether the batch has room for the lane; a few sequences are reserved for the next short prompt."""
        retained = 0 if lane == "interactive" else self._max_num_seqs // _RESERVED_SEQS_DIVISOR
        return len(self._sequence_table.running) + retained < self._max_num_seqs

    def _try_start(self, seq: Sequence, reserved: int, now: float) -> Literal["started", "passed", "blocked"]:
        """Start a waiting sequence if it fits beside the `reserved` blocks; return the outcome.

        "passed" means that its deadline would pass or that it waits for a prefix; "blocked" means that blocks are
        short.
        """
        running = self._sequence_table.running
        if running and self._blocked.is_still_blocked(seq, self._blocks.num_frees):
            return "blocked"
        prefix = self._blocks.find_prefix(seq)
        if self._admission.misses_deadline(seq, self._blocks.num_spared_tokens(seq, len(prefix)), len(running), now):
            self._sequence_table.expire(seq, now, 0.0, "the deadline would pass before the first token")
            return "passed"
        if self._waits_for_prefix(seq, len(prefix)):
            return "passed"
        # An empty core starts anything that can be served at all; otherwise a wrong forecast could block for ever.
        if running and not self._admission.can_start(seq, prefix, reserved):
            self._blocked.note(seq, self._blocks.num_frees)
            return "blocked"
        self._start(seq, prefix, now)
        return "started"

    def _waits_for_prefix(self, seq: Sequence, num_found: int) -> bool:
        """Return whether a running sequence is computing the first block that this one needs."""
        if not len(self._sequence_table.pending) or num_found >= self._blocks.num_shareable_blocks(seq):
            return False
        return self._blocks.digest(seq, num_found) in self._sequence_table.pending

    def _start(self, seq: Sequence, prefix: list[int], now: float) -> None:
        self._blocks.allocate(seq, prefix, self._admission.room_tokens(seq))
        if self._blocks.enable_prefix_cache:
            shareable = range(len(prefix), self._blocks.num_shareable_blocks(seq))
            self._sequence_table.pending.reserve(seq.seq_id, [self._blocks.digest(seq, index) for index in shareable])
        if seq.state is SequenceState.WAITING:
            seq.num_cached_tokens = min(seq.num_computed_tokens, seq.num_prompt_tokens)
            self._tally.prompt_tokens += seq.num_prompt_tokens
            if self._blocks.enable_prefix_cache:
                self._tally.prefix_query_tokens += seq.num_prompt_tokens
                self._tally.prefix_hit_tokens += seq.num_cached_tokens
        self._sequence_table.start(seq, now)
