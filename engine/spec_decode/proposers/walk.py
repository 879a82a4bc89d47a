"""One row's guesses in a step: each stands behind those before it."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from math import prod

from engine.spec_decode.proposers.acceptance_stats import AcceptanceStats
from engine.spec_decode.proposers.draft_token import FORCED, DraftToken, Kind, near_end
from engine.step.sequence import Sequence


class Walk:
    """Steps ahead of a sequence; whoever knows what may come next takes them."""

    def __init__(
        self,
        seq: Sequence,
        limit: int,
        record: AcceptanceStats,
        *,
        looks_up: bool = True,
        least_chance: float = 0.0,
        is_near_end: bool = False,
    ) -> None:
        """At most `limit` guesses, and none behind some that are all right more rarely than `least_chance`.

        `looks_up`: whether guesses may be looked up; `is_near_end`: only a few tokens are expected yet.
        """
        self.seq = seq
        self.guesses: list[DraftToken] = []
        self.chance = 1.0
        """Probability that all guesses are right."""
        self.dropped: list[DraftToken] = []
        """Guesses that were given up last."""
        self.num_kept = 0
        """How many guesses they stood behind."""
        self.limit = limit
        """Most guesses there can be."""
        self.least_chance = least_chance
        self.is_near_end = is_near_end
        self._record = record
        self._looks_up = looks_up
        self._is_over = limit < 1
        if limit > 0 and looks_up and seq.grammar is not None:
            for token_id in seq.grammar.forced_tokens():
                self.take(token_id, FORCED)

    @property
    def token_ids(self) -> list[int]:
        """The tokens guessed."""
        return [guess.token_id for guess in self.guesses]

    @property
    def is_over(self) -> bool:
        """Whether there will be no more guesses: none behind the end of an answer, which is none itself."""
        return self._is_over

    @property
    def may_go_on(self) -> bool:
        """Whether a guess that is looked up may be taken."""
        return self._looks_up and not self._is_over and self.chance >= self.least_chance

    def follow(self, guesses: SequenceOf[DraftToken], *, has_ended: bool) -> None:
        """Take guesses that were looked up, as far as the grammar allows; `has_ended`: behind them an answer ends."""
        self.guesses += guesses
        self.chance *= prod(guess.chance for guess in guesses)
        self._is_over = has_ended or len(self.guesses) >= self.limit
        if self.seq.grammar is not None and guesses:
            num_valid = self.seq.grammar.validate(self.token_ids)
            if num_valid < len(self.guesses):
                self.rewind(num_valid)
                self._looks_up = False

    def take(self, token_id: int, kind: Kind) -> None:
        """A guess that was not looked up."""
        if self._is_over:
            return
        # An answer's end needs no draft: the token behind the drafts is sampled anyway.
        if token_id in self.seq.params.stop_token_ids:
            self._is_over = True
            return
        if self.is_near_end:
            kind = near_end(kind)
        self.guesses.append(DraftToken(token_id, kind, self._record.chance(kind)))
        self.chance *= self.guesses[-1].chance
        self._is_over = len(self.guesses) >= self.limit

    def rewind(self, count: int) -> None:
        """Drop the guesses behind the first so many."""
        if count < len(self.guesses):
            self.dropped, self.num_kept = self.guesses[count:], count
            del self.guesses[count:]
            self.chance = prod(guess.chance for guess in self.guesses)
        self._is_over = count >= self.limit
