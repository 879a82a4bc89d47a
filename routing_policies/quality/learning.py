"""Learning in place: what a gateway's own audits, shadows and feedback say of one pair, and what it makes of it.

A label holds the figures and words that features are made of, in no order, and the verdict.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from routing_policies.quality.model import PairModel
from routing_policies.quality.training import Outcome, Trainer

MAX_LABELS: Final = 2000
MIN_LABELS: Final = 200
"""Below as many nothing is learned."""
STEP: Final = 100
"""So many new labels are worth learning from again."""


class LabelBook:
    """The latest labels of one pair; the oldest are forgotten first."""

    __slots__ = ("_labels", "_num_fresh", "_vectors")

    def __init__(self, *, max_labels: int = MAX_LABELS) -> None:
        self._labels: deque[Outcome] = deque(maxlen=max_labels)
        self._vectors: deque[NDArray[np.float32] | None] = deque(maxlen=max_labels)
        self._num_fresh = 0

    def __len__(self) -> int:
        return len(self._labels)

    def add(self, outcome: Outcome, vector: NDArray[np.float32] | None = None) -> None:
        """One more."""
        self._labels.append(outcome)
        self._vectors.append(vector)
        self._num_fresh += 1

    @property
    def is_worth_learning(self) -> bool:
        """Whether enough has come since `take` was called last, and there are both kinds."""
        if len(self._labels) < MIN_LABELS or self._num_fresh < STEP:
            return False
        return len({outcome.good >= 0.5 for outcome in self._labels}) == 2

    def take(self) -> tuple[tuple[Outcome, ...], tuple[NDArray[np.float32] | None, ...]]:
        """All labels and their embeddings, to learn from."""
        self._num_fresh = 0
        return tuple(self._labels), tuple(self._vectors)


def fit_labels(
    labels: tuple[Outcome, ...], vectors: Iterable[NDArray[np.float32] | None], base: PairModel
) -> PairModel:
    """A model of the pair from labels; with the embedding where every label has one. Keeps the base's checkpoints and
    openings, of which labels say nothing. Takes seconds, and belongs on another thread."""
    given = [vector for vector in vectors if vector is not None]
    found = np.stack(given) if len(given) == len(labels) else None
    learned = Trainer(labels, vectors=found).fit(
        weak=base.weak, strong=base.strong, trained_on="labels gathered in place", encoder=base.encoder
    )
    openings = tuple(sorted({*base.openings, *learned.openings}))
    return msgspec.structs.replace(learned, checkpoints=base.checkpoints, openings=openings)
