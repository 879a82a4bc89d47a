"""A token that may come next, and where the guess comes from."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from engine.cpu.multi_step.argmax import SURENESSES
from engine.cpu.multi_step.ngram import BY_BOTH, BY_MEMORY, LONGEST, NUM_LISTED, SIZES, STREAKS
from engine.models.prediction_heads import MAX_HEADS

Kind = int
"""Number of a kind of guess: those of one kind are about equally likely to be right."""

_SUREST = SURENESSES - 1
# Match lengths as they are told apart.
_COARSE = (0, 1, 2, 3, 4, 4, 6, 6, 6, 9, 9, 9, 9, 9, 9, 9, 16)

FORCED: Kind = 0
"""The only text a grammar leaves; only its division into tokens may be another."""
MODEL: Kind = 1
"""The draft model's, however sure it was."""
_MODEL = 2
_AHEAD = _MODEL + 2 * (_SUREST + 1)
_TEXT = _AHEAD + 2 * (_SUREST + 1) * MAX_HEADS
_MEMORY = _TEXT + LONGEST + 1
_BOTH = _MEMORY + (SIZES[0] + 1) * STREAKS
_NUM_PLACES = _BOTH + (LONGEST + 1) * STREAKS
NUM_KINDS = 2 * _NUM_PLACES
NEAR_END_KINDS = _NUM_PLACES
"""How far a kind is from the same one where only a few tokens are expected yet."""


class DraftToken(NamedTuple):
    """A token that may stand behind the guesses before it."""

    token_id: int
    kind: Kind
    chance: float
    """Probability that it is right, given that those before it are; measured."""


def by_text(num_matched: int) -> Kind:
    """Looked up in the sequence's own text, where so many tokens before it were the same."""
    return _TEXT + _COARSE[num_matched]


def by_memory(num_matched: int, streak: int) -> Kind:
    """What earlier answers said; the last of them so many times in succession."""
    return _MEMORY + STREAKS * num_matched + streak


def by_both(num_matched: int, streak: int) -> Kind:
    """What the text and earlier answers agree on."""
    return _BOTH + STREAKS * _COARSE[num_matched] + streak


def by_model(probability: float, *, is_drawn: bool) -> Kind:
    """Said by the draft model with such a probability; told apart by how often that halves the doubt."""
    sureness = min(_SUREST, int(-math.log2(max(1.0 - probability, 1e-6))))
    return _MODEL + 2 * sureness + is_drawn


def first_by_heads(*, is_drawn: bool, is_near_end: bool) -> Kind:
    """The kind of what the first head says when it is least sure; surer ones follow, then those of the next head."""
    return _AHEAD + SURENESSES * MAX_HEADS * is_drawn + _NUM_PLACES * is_near_end


def near_end(kind: Kind) -> Kind:
    """The same where only a few tokens are expected yet: short answers are another sort than long ones."""
    return kind + _NUM_PLACES


def is_by_model(kind: Kind) -> bool:
    """Whether the draft model said it."""
    return _MODEL <= kind % _NUM_PLACES < _AHEAD


def prior(kind: Kind) -> float:
    """What to expect before anything was seen.

    Low for lookups: they are judged without being used, and soon show what they are worth.
    """
    kind %= _NUM_PLACES
    # As sure as it says: its doubt lies between this power of two and half of it.
    if is_by_model(kind):
        return 1.0 - 0.75 * 0.5 ** ((kind - _MODEL) // 2)
    if _AHEAD <= kind < _TEXT:
        return 1.0 - 0.75 * 0.5 ** ((kind - _AHEAD) % SURENESSES)
    if kind < _MODEL:
        return 0.9 if kind == FORCED else 0.8
    return 0.2 if kind < _BOTH else 0.4


def _listed() -> list[int]:
    """Kinds in the order in which compiled lookup knows them; where only a few tokens are expected, behind them."""
    kinds = [by_text(size) for size in range(LONGEST + 1)]
    kinds += [by_memory(size, streak) for size in range(SIZES[0] + 1) for streak in range(STREAKS)]
    kinds += [by_both(size, streak) for size in range(LONGEST + 1) for streak in range(STREAKS)]
    assert (len(kinds), kinds[BY_MEMORY], kinds[BY_BOTH]) == (NUM_LISTED, by_memory(0, 0), by_both(0, 0))
    return kinds + [near_end(kind) for kind in kinds]


KINDS = np.array(_listed())
"""int64 [2 * NUM_LISTED]."""
