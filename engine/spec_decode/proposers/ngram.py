"""Draft tokens that cost no model: answers repeat the prompt (passages, code), earlier answers, and predicted ones.

Prompt lookup (A. Saxena, "Prompt Lookup Decoding", 2023) finds where a text's newest tokens stood before. Answers of
one kind also resemble each other, in the keys of a JSON object or the beginning of a sentence. Looking a text up is
cheaper than generating it. Compare G. Oliaro et al., "SuffixDecoding", 2024, which stores whole suffix trees. A request
may also predict its answer (`engine.cpu.multi_step.prediction`); the likeliest of all sources is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.cpu.jit.layout import STEP_COSTS
from engine.cpu.multi_step import draft_budget
from engine.cpu.multi_step import ngram as compiled
from engine.cpu.multi_step.draft_records import DRAFT_END, DRAFT_ROW
from engine.models.prediction_heads import HeadPredictions
from engine.spec_decode.proposers.acceptance_stats import DECAY, KINDS, AcceptanceStats
from engine.step.sequence import Sequence

Costs = tuple[float, float, float]
"""Seconds of a step: without draft tokens, more with some, more for each."""

_SILENT = HeadPredictions(*np.empty((2, 0, 0), dtype=np.int64))
"""Empty predictions, for steps without heads."""


class LookupPosition(NamedTuple):
    """A sequence whose continuation is looked up."""

    seq: Sequence
    limit: int
    """Maximum number of draft tokens."""
    prefix: tuple[int, ...] = ()
    """Draft tokens already proposed for the sequence; lookup continues behind them."""


@dataclass(slots=True)
class NgramDrafts:
    """Continuations of a step's sequences, and how much of them is worth verifying."""

    arrays: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
    """Tokens and kinds int64 [num_seqs, most], and DRAFT_END records [num_seqs]."""
    counts: list[int]
    """Number of draft tokens of each sequence that are worth verifying."""
    gain: float
    """Expected tokens per second as a multiple of those without drafts; 1 when there are none."""
    described: tuple[npt.NDArray[Any], npt.NDArray[Any]]
    """The sequences for compiled code: DRAFT_ROW records, and the draft tokens and end tokens of each."""

    def token_ids(self) -> list[tuple[int, ...]]:
        """Return the draft tokens of each sequence that are worth verifying."""
        if not any(self.counts):
            return [()] * len(self.counts)
        return [tuple(of_seq[:count]) for of_seq, count in zip(self.arrays[0].tolist(), self.counts, strict=True)]


class NgramProposer:
    """Proposer by lookup in a sequence's text, in its predicted answer, and in a bounded memory of earlier answers.

    The memory drops n-grams that have not recurred for longest. Each salt has its own n-grams, so no tenant's answers
    speed up another's. The memory holds hashes of n-grams: a collision leads to a wrong draft token at worst.
    """

    def __init__(self, stats: AcceptanceStats, capacity: int = 1 << 17) -> None:
        """Create a memory of at most `capacity` n-grams, 16 bytes each; a power of two from 4 on."""
        compiled.prepare()
        draft_budget.prepare()
        self._stats = stats
        self.memory = np.zeros(capacity, dtype=np.int64), np.zeros(capacity, dtype=np.int64)
        """Keys and values of the n-grams, in the format of `engine.cpu.multi_step.ngram`."""

    @property
    def num_remembered(self) -> int:
        """Number of n-grams in the memory."""
        return int(np.count_nonzero(self.memory[0]))

    def learn(self, seq: Sequence) -> None:
        """Store the n-grams of a complete answer."""
        compiled.learn(*seq.token_ids.buffer_info(), seq.num_prompt_tokens, hash(seq.cache_salt), *self.memory)

    def choose(
        self,
        places: SequenceOf[LookupPosition],
        least_probability: float,
        costs: Costs,
        least_gain: float,
        predictions: HeadPredictions | None = None,
    ) -> NgramDrafts:
        """Look up the continuation of each place, and choose how much of it to verify.

        Args:
            places: Where to look.
            least_probability: Least probability that all draft tokens of a sequence are accepted.
            costs: Seconds of the step that verifies them.
            least_gain: Gain below which nothing is verified.
            predictions: Predictions of heads for the same places; taken where they are more likely.
        """
        found = self.nothing(places, least_probability)
        counts = np.empty(len(places), dtype=np.int64)
        found.gain = compiled.choose(
            *found.described, *self.memory, self._stats.acceptance_rates, KINDS, *(predictions or _SILENT),
            *found.arrays, np.array([(*costs, least_gain)], dtype=STEP_COSTS)[0], counts,
        )  # fmt: skip
        found.counts = counts.tolist()
        return found

    def nothing(self, places: SequenceOf[LookupPosition], least_probability: float) -> NgramDrafts:
        """Describe the places without looking anything up."""
        fields, lists = [], []
        for seq, limit, prefix in places:
            stops = seq.params.stop_token_ids
            address, length = seq.token_ids.buffer_info()
            sizes = (len(prefix), len(stops), limit - len(prefix))
            predicted = (0, 0) if seq.prediction is None else seq.prediction.token_ids.buffer_info()
            first_agreement = compiled.BY_DRAWN_PREDICTION if seq.params.temperature > 0.0 else compiled.BY_PREDICTION
            known = (address, length, hash(seq.cache_salt), seq.num_prompt_tokens, *predicted, first_agreement)
            fields.append((*known, *sizes, 1.0, least_probability, 0.0))
            lists += [*prefix, *stops]
        tokens, kinds = np.empty((2, len(places), max(1, *(place.limit for place in places))), dtype=np.int64)
        described = np.array(fields, dtype=DRAFT_ROW), np.array(lists, dtype=np.int64)
        return NgramDrafts((tokens, kinds, np.zeros(len(places), DRAFT_END)), [0] * len(places), 1.0, described)

    def record_acceptance(self, found: NgramDrafts, outputs: Iterable[SequenceOf[int]]) -> None:
        """Update the acceptance rates from the sequences' outputs, up to the first wrong draft token, verified or not.

        Args:
            found: Result of the lookup.
            outputs: Output of each sequence behind its prefix.
        """
        counts: list[int] = []
        tokens: list[int] = []
        for token_ids in outputs:
            counts.append(len(token_ids))
            tokens += token_ids
        stats = self._stats
        draft_budget.record_acceptance(
            *found.arrays,
            np.array(tokens, dtype=np.int64),
            np.array(counts),
            DECAY,
            stats.trials,
            stats.acceptance_rates,
        )
