"""Drafts that cost no model: extraction, passages and code repeat what is in the prompt, answers what others said.

Prompt lookup (A. Saxena, "Prompt Lookup Decoding", 2023) finds where a text's newest tokens stood before. Answers of
one kind also resemble each other (the keys of a JSON object, how a sentence begins), and a text is cheaper to remember
than to say; compare G. Oliaro et al., "SuffixDecoding", 2024, which keeps whole suffix trees.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.cpu.multi_step import draft_budget as weighing
from engine.cpu.multi_step import ngram as compiled
from engine.cpu.multi_step.ngram import NUM_LISTED
from engine.spec_decode.proposers.acceptance_stats import DECAY, AcceptanceStats
from engine.spec_decode.proposers.draft_token import KINDS, DraftToken
from engine.spec_decode.proposers.medusa import HeadPredictions
from engine.spec_decode.proposers.walk import Walk
from engine.step.sequence import Sequence

_SILENT = HeadPredictions(*np.empty((2, 0, 0), dtype=np.int64))
"""Where no heads are asked."""


class LookupPosition(NamedTuple):
    """A sequence whose continuation is looked up."""

    seq: Sequence
    limit: int
    """Most guesses."""
    is_near_end: bool
    """Whether only a few tokens are expected yet."""


@dataclass(slots=True)
class NgramDrafts:
    """Guesses at what a step's rows say next."""

    arrays: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
    """Tokens and kinds int64 [rows, most], and int64 [rows, 2] how many there are and whether an answer ends there."""
    counts: list[int]
    """How many of each row are worth verifying."""
    gain: float
    """Expected tokens per second as a multiple of those without drafts; 1 when there are none."""
    described: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
    """The rows as compiled code read them: int64 [rows, 7], float64 [rows, 3], and tokens that end texts."""

    def drafts(self) -> list[tuple[int, ...]]:
        """What is worth verifying."""
        if not any(self.counts):
            return [()] * len(self.counts)
        return [tuple(of_row[:count]) for of_row, count in zip(self.arrays[0].tolist(), self.counts, strict=True)]


class NgramProposer:
    """What texts and earlier answers say next; the memory is bounded, what was not said for longest is forgotten first.

    A salt shares nothing with another one, so nobody's answers speed up a stranger's. What is remembered are hashes of
    runs: a collision makes a wrong draft at worst.
    """

    def __init__(self, record: AcceptanceStats, capacity: int = 1 << 17) -> None:
        """`capacity`: most runs that are remembered, 16 bytes each; a power of two from 4 on."""
        compiled.prepare()
        weighing.prepare()
        self._record = record
        self.memory = np.zeros(capacity, dtype=np.int64), np.zeros(capacity, dtype=np.int64)
        """Runs and what was said behind them, as `engine.cpu.multi_step.ngram` keeps them."""

    @property
    def num_remembered(self) -> int:
        """Runs of tokens."""
        return int(np.count_nonzero(self.memory[0]))

    def learn(self, seq: Sequence) -> None:
        """An answer is complete."""
        compiled.learn(*seq.token_ids.buffer_info(), seq.num_prompt_tokens, hash(seq.cache_salt), *self.memory)

    def choose(
        self,
        places: SequenceOf[LookupPosition],
        least_chance: float,
        costs: tuple[float, float, float],
        least_gain: float,
        ahead: HeadPredictions | None = None,
    ) -> NgramDrafts:
        """Guesses for each place, none behind some that are all right more rarely than `least_chance`, and how many of
        them to verify in a step that costs so much: plain, more with drafts, more for each.

        `ahead`: what prediction heads say of the same places; it is taken where it is likelier.
        """
        rows, lists = _described((place.seq, (), place.limit, place.is_near_end) for place in places)
        arrays = _room(len(places), max(place.limit for place in places))
        counts = np.empty(len(places), dtype=np.int64)
        numbers = np.array([(1.0, least_chance, 0.0)] * len(places))
        gain = compiled.choose(
            rows, numbers, lists, *self.memory, self._record.chances, KINDS, *(ahead or _SILENT), *arrays,
            np.array((*costs, least_gain)), counts,
        )  # fmt: skip
        return NgramDrafts(arrays, counts.tolist(), gain, (rows, numbers, lists))

    def judge(self, found: NgramDrafts, said: Iterable[SequenceOf[int]]) -> None:
        """Guesses up to the first wrong one were put to the test by what the rows said, verified or not."""
        counts: list[int] = []
        tokens: list[int] = []
        for token_ids in said:
            counts.append(len(token_ids))
            tokens += token_ids
        record = self._record
        weighing.judge(
            *found.arrays, np.array(tokens, dtype=np.int64), np.array(counts), DECAY, record.trials, record.chances
        )

    def go(self, walks: SequenceOf[Walk], least_next: float = 0.0, ahead: HeadPredictions | None = None) -> None:
        """Let each walk take further guesses, as long as each is at least so likely.

        `ahead`: what prediction heads say behind each walk's newest token; it is taken where it is likelier.
        """
        going = [index for index, walk in enumerate(walks) if walk.may_go_on]
        if not going:
            return
        walks = [walks[index] for index in going]
        said = _SILENT if ahead is None else HeadPredictions(ahead.tokens[going], ahead.kinds[going])
        rows, lists = _described((walk.seq, walk.token_ids, walk.limit, walk.is_near_end) for walk in walks)
        numbers = np.array([(walk.chance, walk.least_chance, least_next) for walk in walks])
        arrays = _room(len(walks), max(walk.limit for walk in walks))
        compiled.look_ahead(rows, numbers, lists, *self.memory, self._record.chances, KINDS, *said, *arrays)
        for walk, token_ids, kinds, (count, has_ended) in zip(
            walks, *(array.tolist() for array in arrays), strict=True
        ):
            guesses = [
                DraftToken(token_id, kind, self._record.chance(kind))
                for token_id, kind in zip(token_ids[:count], kinds[:count], strict=True)
            ]
            walk.follow(guesses, has_ended=bool(has_ended))


class NoDrafts:
    """What rounds are told that follow a step without guesses; the same arrays every time."""

    def __init__(self, max_rows: int, most: int) -> None:
        """`most`: guesses at what a row says next, in each round."""
        self._rows, self._numbers = np.zeros((max_rows, 7), dtype=np.int64), np.ones((max_rows, 3))
        self._numbers[:, 2] = 0.0
        self._arrays = _room(max_rows, most)
        self._stops = np.zeros(0, dtype=np.int64)
        self._told: list[tuple[int, ...]] = []

    def of(self, seqs: SequenceOf[Sequence], least_chance: float) -> NgramDrafts:
        """Of these sequences; none is guessed behind some that are all right more rarely than `least_chance`."""
        stops = [seq.params.stop_token_ids for seq in seqs]
        self._rows[: len(seqs)] = [
            (*seq.token_ids.buffer_info(), hash(seq.cache_salt), 0, len(of_seq), 0, 0)
            for seq, of_seq in zip(seqs, stops, strict=True)
        ]
        if stops != self._told:
            self._told = stops
            self._stops = np.array([token_id for of_seq in stops for token_id in of_seq], dtype=np.int64)
        self._numbers[:, 1] = least_chance
        self._arrays[2].fill(0)
        return NgramDrafts(self._arrays, [0] * len(seqs), 1.0, (self._rows, self._numbers, self._stops))


def _described(
    rows: Iterable[tuple[Sequence, SequenceOf[int], int, bool]],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sequences, their guesses so far, limits and whether few tokens are expected, as compiled code reads them."""
    told: list[tuple[int, ...]] = []
    lists: list[int] = []
    for seq, guesses, limit, is_near_end in rows:
        stops = seq.params.stop_token_ids
        first_kind = NUM_LISTED if is_near_end else 0
        room = limit - len(guesses)
        told.append((*seq.token_ids.buffer_info(), hash(seq.cache_salt), len(guesses), len(stops), room, first_kind))
        lists += guesses
        lists += stops
    return np.array(told), np.array(lists, dtype=np.int64)


def _room(num_rows: int, most: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    tokens, kinds = np.empty((2, num_rows, most), dtype=np.int64)
    return tokens, kinds, np.empty((num_rows, 2), dtype=np.int64)
