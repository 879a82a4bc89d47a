"""Whether answers are over sooner with drafts or without, put to the test by whole answers.

Books by steps miss what no step shows: caches that thinking emptied, heads that looked ahead in vain, rows in company
that wait. An answer in a hundred said the other way tells all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from statistics import median
from typing import NamedTuple
from weakref import WeakKeyDictionary

from engine.core.sequence import Sequence

_KEPT = 16
_FEWEST = 4
"""Answers said either way that a verdict takes."""
_BLOCK = 4
"""Answers in succession that are said the other way, times the rows of a step: those that share steps mostly are said
the same way, too."""
_FIRST_INTERVAL, _LONGEST_INTERVAL = 4, 128
"""Blocks until the other way is tried again; twice as many where it was found slower again."""
_LEAST_SAVED = 1.03
"""Drafts have to be so many times as fast to be worth it."""


class AnswerSort(NamedTuple):
    """Answers that are likely to gain alike: what there is to copy from, and how much there is to say."""

    num_rows_bits: int
    num_prompt_bits: int
    is_short: bool


class _Said(NamedTuple):
    """An answer under way."""

    sort: AnswerSort
    with_drafts: bool
    begun_at: float
    num_tokens: int
    """That it had then."""


class AnswerTrials:
    """Says of each answer at its beginning whether drafts are thought about in it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._trials: dict[AnswerSort, _Trial] = {}
        self._said: WeakKeyDictionary[Sequence, _Said] = WeakKeyDictionary()

    def is_open(self, seq: Sequence) -> bool:
        """Whether drafts are thought about in an answer that was begun; so they are in any other."""
        said = self._said.get(seq)
        return said is None or said.with_drafts

    def begin(self, seqs: SequenceOf[Sequence], num_expected: Callable[[Sequence], float], few_tokens: int) -> None:
        """A decode step of these rows is next; decides about those that are new."""
        for seq in seqs:
            if seq in self._said or not seq.num_output_tokens:
                continue
            is_short = num_expected(seq) <= few_tokens
            sort = AnswerSort(len(seqs).bit_length(), seq.num_prompt_tokens.bit_length(), is_short)
            trial = self._trials.get(sort)
            if trial is None:
                trial = self._trials[sort] = _Trial(_BLOCK * len(seqs))
            self._said[seq] = _Said(sort, trial.next_with_drafts(), self._clock(), seq.num_tokens)

    def end(self, seq: Sequence) -> None:
        """An answer is complete."""
        said = self._said.pop(seq, None)
        if said is not None and seq.num_tokens > said.num_tokens:
            seconds = (self._clock() - said.begun_at) / (seq.num_tokens - said.num_tokens)
            self._trials[said.sort].observe(seconds, with_drafts=said.with_drafts)


class _Trial:
    """Blocks of answers said the usual way, and now and then one said the other way."""

    def __init__(self, block: int) -> None:
        """`block`: answers in succession that are said the other way."""
        self._block = block
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
            self._num_left = self._block * (1 if self._is_trying else self._interval)
        self._num_left -= 1
        return self._usual != self._is_trying

    def observe(self, seconds: float, *, with_drafts: bool) -> None:
        """One answer took so long for each token."""
        self._seconds[with_drafts].append(seconds)

    def _conclude(self) -> None:
        if min(map(len, self._seconds.values())) < _FEWEST:
            return
        pays = median(self._seconds[True]) * _LEAST_SAVED < median(self._seconds[False])
        self._interval = min(2 * self._interval, _LONGEST_INTERVAL) if pays == self._usual else _FIRST_INTERVAL
        self._usual = pays
