"""How many prompt tokens each lane may compute in a step, beside the rows that decode."""

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
        """Prompt tokens for each lane, at most `budget` in all; `waiting` is None when no row is free;
        `is_crowded`: several patient prompts are there.

        The lanes share what a step may hold that nobody notices. Only short prompts go beyond it, up to the
        inter-token target: what others put into the same step would come out of the short ones' own first token.

        Waiting prompts count whole, though the prefix cache may hold most of them: what a lane leaves is anybody's.
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
        """Whose waiting sequence starts next."""
        return self._shares.next_turn(lanes)

    def limit(
        self,
        decoding: Collection[Sequence],
        num_prefill_context: int,
        *,
        is_urgent: bool,
        is_crowded: bool = False,
    ) -> int | None:
        """Tokens that keep the decoding rows' pace; None when nobody watches them."""
        if all(seq.lane == "batch" for seq in decoding):
            return None
        num_context_tokens = sum(seq.num_tokens for seq in decoding)
        return self._chunks.tokens(
            len(decoding), num_context_tokens, num_prefill_context, is_urgent=is_urgent, is_crowded=is_crowded
        )
