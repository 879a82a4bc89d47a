"""One row's guesses in a step: each stands behind those before it."""

from __future__ import annotations

from math import prod

from engine.core.sequence import Sequence
from engine.speculation.answer_memory import AnswerMemory, Remembered
from engine.speculation.guess import FORCED, Guess, Kind, by_both, by_memory, by_text, near_end
from engine.speculation.text_index import LONGEST, TextIndex, match_length
from engine.speculation.track_record import TrackRecord


class Walk:
    """Steps ahead of a sequence by lookup; whoever knows better may take a step in between."""

    def __init__(
        self,
        seq: Sequence,
        limit: int,
        index: TextIndex | None,
        memory: AnswerMemory,
        record: TrackRecord,
        *,
        least_chance: float = 0.0,
        is_near_end: bool = False,
    ) -> None:
        """At most `limit` guesses, and none behind some that are all right more rarely than `least_chance`.

        Without an index nothing is looked up. `is_near_end`: only a few tokens are expected yet.
        """
        self.seq = seq
        self.guesses: list[Guess] = []
        self.chance = 1.0
        """Probability that all guesses are right."""
        self.dropped: list[Guess] = []
        """Guesses that were given up last."""
        self.num_kept = 0
        """How many guesses they stood behind."""
        self.limit = limit
        """Most guesses there can be."""
        self._index = index
        self._memory = memory
        self._chances = record.chances
        self._least_chance = least_chance
        self._is_near_end = is_near_end
        self._newest: list[int] = seq.token_ids[-LONGEST:].tolist()
        self._place: int | None = None
        self._num_matched = 0
        self._is_over = limit < 1
        if limit > 0 and index is not None and seq.grammar is not None:
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

    def go(self, least_chance: float = 0.0) -> None:
        """Look up further guesses, as long as each is at least so likely."""
        first = len(self.guesses)
        while not self._is_over and self._index is not None and self.chance >= self._least_chance:
            guess = self._peek(self._index)
            if guess is None or guess.chance < least_chance:
                break
            self._append(guess)
        if self.seq.grammar is not None and len(self.guesses) > first:
            num_valid = self.seq.grammar.validate(self.token_ids)
            if num_valid < len(self.guesses):
                self.rewind(num_valid)
                self._index = None

    def take(self, token_id: int, kind: Kind) -> None:
        """A guess that was not looked up."""
        if not self._is_over:
            self._append(self._guess(token_id, kind))

    def rewind(self, count: int) -> None:
        """Drop the guesses behind the first so many."""
        num_dropped = len(self.guesses) - count
        if num_dropped:
            self.dropped, self.num_kept = self.guesses[count:], count
            del self.guesses[count:]
            del self._newest[-num_dropped:]
            self.chance = prod(guess.chance for guess in self.guesses)
            self._place = None
        self._is_over = count >= self.limit

    def _append(self, guess: Guess) -> None:
        # An answer's end needs no draft: the token behind the drafts is sampled anyway.
        if guess.token_id in self.seq.params.stop_token_ids:
            self._is_over = True
            return
        self.guesses.append(guess)
        self._newest.append(guess.token_id)
        self.chance *= guess.chance
        self._is_over = len(self.guesses) >= self.limit
        self._follow(guess.token_id)

    def _follow(self, token_id: int) -> None:
        """Stay in the place that is being copied, or leave it."""
        text, place = self.seq.token_ids, self._place
        if place is not None and text[place] == token_id and place + 1 < len(text):
            self._place, self._num_matched = place + 1, min(self._num_matched + 1, LONGEST)
        else:
            self._place = None

    def _peek(self, index: TextIndex) -> Guess | None:
        """The likelier of what the text and what the memory says."""
        if self._place is None:
            self._place = index.find(self._newest)
            if self._place is not None:
                self._num_matched = match_length(self.seq.token_ids, self._place, self._newest)
        known = self._memory.recall(self.seq.cache_salt, self._newest)
        if self._place is None:
            return None if known is None else self._remembered(known)
        token_id = self.seq.token_ids[self._place]
        if known is not None and known.token_id == token_id:
            return self._guess(token_id, by_both(self._num_matched, known.streak))
        found = self._guess(token_id, by_text(self._num_matched))
        if known is None:
            return found
        other = self._remembered(known)
        return other if other.chance > found.chance else found

    def _remembered(self, known: Remembered) -> Guess:
        return self._guess(known.token_id, by_memory(known.size, known.streak))

    def _guess(self, token_id: int, kind: Kind) -> Guess:
        if self._is_near_end:
            kind = near_end(kind)
        return Guess(token_id, kind, self._chances[kind])
