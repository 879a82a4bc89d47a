"""Rounds that follow a step with drafts in the same go, where a model can do that: what lookup and heads say behind one
round is verified in the next, and nobody is asked in between."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from engine.core.drafting import DraftRequest
from engine.models.further_rounds import FurtherRounds, GuessTables, Round, RoundsOrder
from engine.speculation.guess import KINDS, NEAR_END_KINDS, first_by_heads
from engine.speculation.lookup import Found, Lookup
from engine.speculation.track_record import DECAY, TrackRecord

NUM_REACHED = 48
"""Tokens for which a row's blocks are asked for."""
_MOST_ROUNDS = 8
_MOST_SECONDS = 0.005
"""No round is begun later: who comes, goes or is to be told a token waits no longer than that."""
_LEAST_GAIN = 1.02
"""Here a thought costs hardly anything, and its step does not wait for it."""
_KEPT = 0.9
_LEAST_SHARE, _MOST_SHARE = 0.2, 1.0


class FollowUp:
    """Orders rounds, and learns what they take."""

    def __init__(
        self, rounds: FurtherRounds, lookup: Lookup, record: TrackRecord, *, few_tokens: int, length_margin: float
    ) -> None:
        self._rounds = rounds
        # How much of a step's time a round without drafts takes, by rows: less, for nobody is asked before it.
        self._shares: dict[int, float] = {}
        rounds.begin(
            GuessTables(
                memory=lookup.memory,
                trials=record.trials,
                chances=record.chances,
                kinds=KINDS,
                decay=DECAY,
                near_end_kinds=NEAR_END_KINDS,
                head_kind=first_by_heads(is_drawn=False, is_near_end=False),
                few_tokens=few_tokens,
                length_margin=length_margin,
            )
        )

    def order(
        self,
        found: Found,
        requests: SequenceOf[DraftRequest],
        expected: SequenceOf[float],
        costs: tuple[float, float, float],
    ) -> None:
        """Have rounds follow a step of these rows, of which so many tokens are expected yet, and which costs so much:
        plain, more with drafts, more for each."""
        if len(requests) > self._rounds.max_rows:
            return
        plain_s, drafting_s, each_s = costs
        self._rounds.order(
            RoundsOrder(
                *found.described,
                found=found.arrays,
                ends_at=[request.max_tokens for request in requests],
                expected=[
                    request.seq.num_tokens + num_tokens for request, num_tokens in zip(requests, expected, strict=True)
                ],
                costs=(self._shares.get(len(requests), _MOST_SHARE) * plain_s, drafting_s, each_s, _LEAST_GAIN),
                max_rounds=_MOST_ROUNDS,
                max_seconds=_MOST_SECONDS,
            )
        )

    def take(self, num_rows: int, costs: tuple[float, float, float]) -> list[Round]:
        """The last step and the rounds that followed it, once; none where it was not followed."""
        rounds = self._rounds.rounds()
        plain_s, drafting_s, each_s = costs
        for one in rounds[1:]:
            share = (one.seconds - drafting_s - each_s * one.num_drafts) / plain_s
            share = min(max(share, _LEAST_SHARE), _MOST_SHARE)
            self._shares[num_rows] = _KEPT * self._shares.get(num_rows, _MOST_SHARE) + (1.0 - _KEPT) * share
        return rounds
