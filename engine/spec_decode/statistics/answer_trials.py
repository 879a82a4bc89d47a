"""Whether answers are over sooner with drafts or without, put to the test by whole answers.

Books by steps miss what no step shows: caches that thinking emptied, heads that looked ahead in vain, rows in company
that wait. An answer in a hundred said the other way tells all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from statistics import median
from typing import NamedTuple
from weakref import WeakKeyDictionary

from engine.step.sequence import Sequence

_KEPT = 12
_FEWEST = 4
"""Answers said either way that a verdict takes."""
_BLOCK = 4
"""Answers in succession that are said the other way, times the rows of a step: those that share steps mostly are said
the same way, too."""
_FIRST_INTERVAL, _LONGEST_INTERVAL, _GROWTH = 2, 32, 4
"""Blocks until the other way is tried again, and how many times as many where it was found slower again. Few at first:
drafts get right as answers are said with them."""
_LEAST_SAVED, _LEAST_SAVED_OF_SHORT = 1.03, 1.1
"""Drafts have to be so many times as fast to be worth it. Times of short answers are far apart whatever is done."""


_CLOSED_TOKENS, _CLOSED_TOKENS_OF_SHORT = 64, 8
"""Said without drafts until they are thought about all the same: an answer that goes on may come to repeat itself, and
one that was taken for a short one is none."""


class AnswerSort(NamedTuple):
    """Answers that are likely to gain alike: what there is to copy from, and how much there is to say."""

    num_rows_bits: int
    prompt_size: int
    """Power of four of its tokens."""
    is_short: bool
    """Whether it is most likely over after a few tokens."""


def sort_of(seq: Sequence, num_rows: int, *, is_short: bool) -> AnswerSort:
    """An answer's, in steps of so many rows."""
    return AnswerSort(num_rows.bit_length(), (seq.num_prompt_tokens.bit_length() + 1) // 2, is_short)


class _Said(NamedTuple):
    """An answer under way."""

    sort: AnswerSort
    with_drafts: bool
    begun_at: float
    num_tokens: int
    """That it had then."""
    counts: bool = True
    """Whether the time that it takes tells anything."""

    @property
    def open_from(self) -> int:
        """Tokens that it has when drafts are thought about."""
        if self.with_drafts:
            return 0
        return self.num_tokens + (_CLOSED_TOKENS_OF_SHORT if self.sort.is_short else _CLOSED_TOKENS)


class AnswerTrials:
    """Says of each answer at its beginning whether drafts are thought about in it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._trials: dict[AnswerSort, _Trial] = {}
        self._said: WeakKeyDictionary[Sequence, _Said] = WeakKeyDictionary()

    def is_open(self, seq: Sequence) -> bool:
        """Whether drafts are thought about in an answer that was begun; so they are in any other."""
        said = self._said.get(seq)
        return said is None or seq.num_tokens >= said.open_from

    def num_closed(self, seqs: SequenceOf[Sequence]) -> int:
        """Tokens until one of these answers, none of which is open, is; 0 where that is known of none."""
        known = ((self._said.get(seq), seq) for seq in seqs)
        return min((said.open_from - seq.num_tokens for said, seq in known if said is not None), default=0)

    def may_open(self, seqs: SequenceOf[Sequence]) -> bool:
        """The same of any of these, as it will most likely be decided about those that are yet to begin in a step."""
        for seq in seqs:
            said = self._said.get(seq)
            if said is not None:
                if self.is_open(seq):
                    return True
                continue
            for is_short in (False, True):
                trial = self._trials.get(sort_of(seq, len(seqs), is_short=is_short))
                if trial is None or trial.with_drafts:
                    return True
        return False

    def begin(
        self,
        seqs: SequenceOf[Sequence],
        is_short: Callable[[Sequence], bool | None],
        num_rows: int,
        num_new: Mapping[Sequence, int] | None = None,
    ) -> None:
        """These rows are in the next decode step, which has so many; decides about those that are new.

        `is_short` is asked about these: None of one that has said nothing yet. `num_new`: tokens that they have yet to
        take.
        """
        bits = num_rows.bit_length()
        for seq in seqs:
            said = self._said.get(seq)
            if said is None:
                is_soon_over = is_short(seq)
                if is_soon_over is not None:
                    num_output = seq.num_output_tokens + (0 if num_new is None else num_new.get(seq, 0))
                    num_said = seq.num_prompt_tokens + max(1, num_output)
                    self._said[seq] = self._decide(sort_of(seq, num_rows, is_short=is_soon_over), num_said, num_rows)
            elif bits > said.sort.num_rows_bits:
                # Company came, and its time tells nothing any more.
                self._said[seq] = said._replace(counts=False)

    def shut(self, seq: Sequence) -> None:
        """Drafts are not thought about in an answer that is yet to begin, unless it gets longer than short ones do; its
        time tells nothing."""
        sort = sort_of(seq, 1, is_short=True)
        self._said[seq] = _Said(sort, False, self._clock(), seq.num_tokens + 1, counts=False)

    def end(self, seq: Sequence) -> None:
        """An answer is complete."""
        said = self._said.pop(seq, None)
        if said is None or not said.counts or seq.num_tokens <= said.num_tokens:
            return
        if said.with_drafts or seq.num_tokens < said.open_from:  # one that was said both ways tells nothing
            seconds = (self._clock() - said.begun_at) / (seq.num_tokens - said.num_tokens)
            self._trials[said.sort].observe(seconds, with_drafts=said.with_drafts)

    def _decide(self, sort: AnswerSort, num_said: int, num_rows: int) -> _Said:
        trial = self._trials.get(sort)
        if trial is None:
            trial = self._trials[sort] = _Trial(_BLOCK * num_rows, sort)
        return _Said(sort, trial.next_with_drafts(), self._clock(), num_said)


class _Trial:
    """Blocks of answers said the usual way, and now and then one said the other way."""

    def __init__(self, block: int, sort: AnswerSort) -> None:
        """`block`: answers in succession that are said the other way."""
        self._block = block
        self._least_saved = _LEAST_SAVED_OF_SHORT if sort.is_short else _LEAST_SAVED
        self._seconds: dict[bool, deque[float]] = {way: deque(maxlen=_KEPT) for way in (False, True)}
        self._usual = True
        self._is_trying = False
        self._interval = _FIRST_INTERVAL
        self._num_left = block

    def next_with_drafts(self) -> bool:
        """How the next answer is said."""
        if not self._num_left:
            if self._is_trying:
                self._conclude()
            self._is_trying = not self._is_trying
            if self._is_trying and self._interval == _FIRST_INTERVAL:
                self._seconds[not self._usual].clear()  # what it took when little was known yet
            self._num_left = self._block * (1 if self._is_trying else self._interval)
        self._num_left -= 1
        return self.with_drafts

    @property
    def with_drafts(self) -> bool:
        """How the last answer was said."""
        return self._usual != self._is_trying

    def observe(self, seconds: float, *, with_drafts: bool) -> None:
        """One answer took so long for each token."""
        self._seconds[with_drafts].append(seconds)

    def _conclude(self) -> None:
        if min(map(len, self._seconds.values())) < _FEWEST:
            return
        pays = median(self._seconds[True]) * self._least_saved < median(self._seconds[False])
        self._interval = min(_GROWTH * self._interval, _LONGEST_INTERVAL) if pays == self._usual else _FIRST_INTERVAL
        self._usual = pays
