"""Acceptance rates by kind of draft token."""

from __future__ import annotations

import numpy as np

from engine.cpu.multi_step.argmax import SURENESSES
from engine.cpu.multi_step.ngram import BY_BOTH, BY_MEMORY, LONGEST, NUM_LISTED, SIZES, STREAKS
from engine.models.prediction_heads import MAX_HEADS

Kind = int
"""Number of a kind of draft token: those of one kind are about equally likely to be accepted."""

DECAY = 0.98
"""What remains of older evidence after each trial."""
_TRIALS = 4.0
"""Trials that a prior weighs as much as, so that a lucky or unlucky one does not decide."""
# Match lengths as they are told apart.
_COARSE = (0, 1, 2, 3, 4, 4, 6, 6, 6, 9, 9, 9, 9, 9, 9, 9, 16)

MODEL: Kind = 0
"""A draft model's."""
HEADS: Kind = 1
"""What the first of several prediction heads says, however sure it is."""
_HEADS = 2
_TEXT = _HEADS + 2 * SURENESSES * MAX_HEADS
_MEMORY = _TEXT + LONGEST + 1
_BOTH = _MEMORY + (SIZES[0] + 1) * STREAKS
NUM_KINDS = _BOTH + (LONGEST + 1) * STREAKS


def by_text(num_matched: int) -> Kind:
    """Return the kind of what the sequence's own text says, where so many tokens before it were the same."""
    return _TEXT + _COARSE[num_matched]


def by_memory(num_matched: int, streak: int) -> Kind:
    """Return the kind of what earlier answers said, the last of them so many times in succession."""
    return _MEMORY + STREAKS * num_matched + streak


def by_both(num_matched: int, streak: int) -> Kind:
    """Return the kind of what the text and earlier answers agree on."""
    return _BOTH + STREAKS * _COARSE[num_matched] + streak


def first_by_heads(*, is_drawn: bool) -> Kind:
    """Return the kind of what the first head says when it is least sure; surer ones follow, then the next head's."""
    return _HEADS + SURENESSES * MAX_HEADS * is_drawn


def prior(kind: Kind) -> float:
    """Return what to expect before anything was seen.

    Low for lookups: they are judged without being used, and soon show what they are worth.
    """
    if kind in (MODEL, HEADS):
        return 0.8
    if kind < _TEXT:
        # As sure as it says: its doubt lies between this power of two and half of it.
        return 1.0 - 0.75 * 0.5 ** ((kind - _HEADS) % SURENESSES)
    return 0.2 if kind < _BOTH else 0.4


def _listed() -> list[int]:
    """Return the kinds of lookup in the order in which compiled code knows them."""
    kinds = [by_text(size) for size in range(LONGEST + 1)]
    kinds += [by_memory(size, streak) for size in range(SIZES[0] + 1) for streak in range(STREAKS)]
    kinds += [by_both(size, streak) for size in range(LONGEST + 1) for streak in range(STREAKS)]
    assert (len(kinds), kinds[BY_MEMORY], kinds[BY_BOTH]) == (NUM_LISTED, by_memory(0, 0), by_both(0, 0))
    return kinds


KINDS = np.array(_listed())
"""int64 [NUM_LISTED]."""


class AcceptanceStats:
    """Judges draft tokens by what was said, whether they were verified or only kept in mind.

    So lookups go on being judged while they are not used, which costs next to nothing.
    """

    def __init__(self) -> None:
        priors = np.array([prior(kind) for kind in range(NUM_KINDS)])
        self.trials = np.stack([_TRIALS * priors, np.full(NUM_KINDS, _TRIALS)])
        """float64 [2, kinds]: those that were accepted, and all."""
        self.chances = priors
        """float64 [kinds]: probability that the next one is accepted; read only."""

    def chance(self, kind: Kind) -> float:
        """Return how likely the next one of a kind is accepted, given that those before it are."""
        return float(self.chances[kind])

    def observe(self, kind: Kind, *, was_right: bool) -> None:
        """Learn from one draft token."""
        self.trials[:, kind] *= DECAY
        self.trials[:, kind] += was_right, 1.0
        self.chances[kind] = self.trials[0, kind] / self.trials[1, kind]
