"""Acceptance rates by kind of draft token."""

from __future__ import annotations

import numpy as np

from engine.cpu.multi_step.argmax import CONFIDENCE_CLASSES
from engine.cpu.multi_step.draft_budget import observe
from engine.cpu.multi_step.draft_records import TRIALS
from engine.cpu.multi_step.ngram import BY_BOTH, BY_MEMORY, BY_PREDICTION, LONGEST, NUM_LISTED, SIZES, STREAKS
from engine.cpu.multi_step.prediction import AGREES_SO_FAR, ANCHOR, NUM_AGREEMENTS
from engine.models.prediction_heads import MAX_HEADS

Kind = int
"""Number of a kind of draft token: those of one kind are about equally likely to be accepted."""

DECAY = 0.98
"""Factor on the weight of older trials at each new one."""
_TRIALS = 4.0
"""Weight of a prior in trials, so that one lucky or unlucky trial does not decide."""
# Class of each match length.
_COARSE = (0, 1, 2, 3, 4, 4, 6, 6, 6, 9, 9, 9, 9, 9, 9, 9, 16)

MODEL: Kind = 0
"""Kind of a draft model's tokens."""
HEADS: Kind = 1
"""Kind of the first prediction head's tokens, whatever their confidence."""
_HEADS = 2
_TEXT = _HEADS + 2 * CONFIDENCE_CLASSES * MAX_HEADS
_MEMORY = _TEXT + LONGEST + 1
_BOTH = _MEMORY + (SIZES[0] + 1) * STREAKS
_PREDICTION = _BOTH + (LONGEST + 1) * STREAKS
NUM_KINDS = _PREDICTION + 2 * NUM_AGREEMENTS


def by_text(num_matched: int) -> Kind:
    """Return the kind of tokens looked up in the sequence's own text, behind a match of `num_matched` tokens."""
    return _TEXT + _COARSE[num_matched]


def by_memory(num_matched: int, streak: int) -> Kind:
    """Return the kind of tokens of earlier answers, of which the last `streak` in succession agree."""
    return _MEMORY + STREAKS * num_matched + streak


def by_both(num_matched: int, streak: int) -> Kind:
    """Return the kind of tokens on which the text and earlier answers agree."""
    return _BOTH + STREAKS * _COARSE[num_matched] + streak


def by_prediction(agreement: int, *, is_drawn: bool = False) -> Kind:
    """Return the kind of a predicted answer's tokens, behind an agreement of `engine.cpu.multi_step.prediction`.

    `is_drawn`: the sampler draws the answer, so it leaves the prediction more often.
    """
    size = agreement if agreement >= AGREES_SO_FAR else _COARSE[agreement]
    return _PREDICTION + NUM_AGREEMENTS * is_drawn + size


def is_by_prediction(kind: Kind) -> bool:
    """Return whether a draft token is a predicted answer's."""
    return kind >= _PREDICTION


def first_by_heads(*, is_drawn: bool) -> Kind:
    """Return the kind of the first head's least certain tokens; its other kinds follow, then those of the next head."""
    return _HEADS + CONFIDENCE_CLASSES * MAX_HEADS * is_drawn


def prior(kind: Kind) -> float:
    """Return the acceptance rate to assume before any trial.

    It is low for lookups in other texts: their acceptance is measured without verification, so their real rate shows
    soon.
    """
    if kind in (MODEL, HEADS):
        return 0.8
    if kind < _TEXT:
        # The head's own confidence: its doubt lies between this power of two and half of it.
        return 1.0 - 0.75 * 0.5 ** ((kind - _HEADS) % CONFIDENCE_CLASSES)
    if kind < _PREDICTION:
        return 0.2 if kind < _BOTH else 0.4
    # Somebody expects this very answer.
    return 0.8 if (kind - _PREDICTION) % NUM_AGREEMENTS >= _COARSE[ANCHOR] else 0.4


def _listed() -> list[int]:
    """Return the kinds of lookup in the order that compiled code uses."""
    kinds = [by_text(size) for size in range(LONGEST + 1)]
    kinds += [by_memory(size, streak) for size in range(SIZES[0] + 1) for streak in range(STREAKS)]
    kinds += [by_both(size, streak) for size in range(LONGEST + 1) for streak in range(STREAKS)]
    kinds += [by_prediction(size, is_drawn=is_drawn) for is_drawn in (False, True) for size in range(NUM_AGREEMENTS)]
    firsts = kinds[BY_MEMORY], kinds[BY_BOTH], kinds[BY_PREDICTION]
    assert (len(kinds), *firsts) == (NUM_LISTED, by_memory(0, 0), by_both(0, 0), by_prediction(0))
    return kinds


KINDS = np.array(_listed())
"""Kinds of lookup in the order of compiled code, int64 [NUM_LISTED]."""


class AcceptanceStats:
    """Acceptance rates of draft tokens, updated from outputs whether the tokens were verified or not.

    So their acceptance is measured even while they are not used, at almost no cost.
    """

    def __init__(self) -> None:
        priors = np.array([prior(kind) for kind in range(NUM_KINDS)])
        self.trials = np.empty(NUM_KINDS, dtype=TRIALS)
        """TRIALS records, one of each kind."""
        self.trials["accepted"], self.trials["tried"] = _TRIALS * priors, _TRIALS
        self.acceptance_rates = priors
        """Probability that the next draft token is accepted, float64 [kinds]; read only."""

    def acceptance_rate(self, kind: Kind) -> float:
        """Return the probability that the next token of a kind is accepted, given that those before it are."""
        return float(self.acceptance_rates[kind])

    def observe(self, kind: Kind, *, was_right: bool) -> None:
        """Count one draft token."""
        observe(self.trials, self.acceptance_rates, kind, was_right, DECAY)
