"""Prompt tokens that each lane may compute in a step, beside the sequences that decode."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from engine.protocol import Lane
from engine.scheduler.chunk_limit import ChunkLimit
from engine.scheduler.lanes import LANES, LaneShares
from engine.scheduler.waiting import WaitingLanes
from engine.step.sequence import Sequence


class PromptBudget:
    """Demands of the lanes, bounded by the step's length, split by weight."""

    def __init__(self, shares: LaneShares, chunks: ChunkLimit) -> None:
        self._shares = shares
        self._chunks = chunks

    def grants(
        self,
        budget: int,
        decoding: Collection[Sequence],
        prefilling: Iterable[Sequence],
        waiting: WaitingLanes | None,
        *,
        is_crowded: bool,
    ) -> dict[Lane, int]:
        """Return the number of prompt tokens for each lane, at most `budget` in all.

        The lanes share the tokens that hardly lengthen a step. Only short prompts may exceed them, up to the
        inter-token target. Other work in the same step would delay the first token of the short prompts.

        Waiting prompts count whole, though the prefix cache may hold most of them: any lane may use what another
        leaves.

        Args:
            budget: Maximum number of prompt tokens in the step.
            decoding: Sequences that decode in the step.
            prefilling: Running sequences whose prompts are not complete.
            waiting: Waiting sequences by lane; None if the batch is full.
            is_crowded: True if several patient prompts are not complete.
        """
        demands: dict[Lane, int] = {lane: 0 if waiting is None else waiting.of(lane).num_tokens for lane in LANES}
        longest = 0
        for seq in prefilling:
            demands[seq.lane] += seq.num_uncomputed_tokens
            longest = max(longest, seq.num_computed_tokens)
        calm = self.limit(decoding, longest, is_urgent=False, is_crowded=is_crowded)
        grants = self._shares.split(budget if calm is None else min(budget, calm), demands)
        if calm is not None and demands["interactive"] > grants["interactive"]:
            urgent = self.limit(decoding, longest, is_urgent=True)
            room = (budget if urgent is None else min(budget, urgent)) - sum(grants.values())
            grants["interactive"] += min(max(room, 0), demands["interactive"] - grants["interactive"])
        return grants

    def next_turn(self, lanes: Collection[Lane]) -> Lane:
        """Return the lane whose waiting sequence starts next."""
        return self._shares.next_turn(lanes)

    def limit(
        self,
        decoding: Collection[Sequence],
        num_prefill_context: int,
        *,
        is_urgent: bool,
        is_crowded: bool = False,
    ) -> int | None:
        """Return the prompt tokens that keep the pace of decoding sequences; None if all are in lane `batch`."""
        if all(seq.lane == "batch" for seq in decoding):
            return None
        num_context_tokens = sum(seq.num_tokens for seq in decoding)
        return self._chunks.tokens(
            len(decoding), num_context_tokens, num_prefill_context, is_urgent=is_urgent, is_crowded=is_crowded
        )
