"""Learning in place: new coefficients of a pair from a gateway's own audits, shadows and feedback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from routing_policies.quality.hashing import hashed_model
from routing_policies.quality.model import PairModel
from routing_policies.quality.training.label import Label
from routing_policies.quality.training.trainer_import import import_trainer

MAX_LABELS: Final = 2000
MIN_LABELS: Final = 200
"""Minimum number of labels for a fit."""
STEP: Final = 100
"""Number of new labels after which another fit is due."""
HELD_OUT: Final = 4
"""Reciprocal of the share of labels that are held out to test the new model against the old one."""
IN_PLACE: Final = "labels gathered in place"
_MOST: Final = 0.8
"""Minimum share of labels with an embedding at which the others are left out."""


class LabelBuffer:
    """Latest labels of one pair, by key; keys are in the order of time.

    Beyond the limit, the tenant with the most labels loses its oldest.
    """

    __slots__ = ("_labels", "_max_labels", "_num_fresh")

    def __init__(self, *, max_labels: int = MAX_LABELS) -> None:
        self._labels: dict[str, Label] = {}
        self._max_labels = max_labels
        self._num_fresh = 0

    def __len__(self) -> int:
        return len(self._labels)

    def add(self, key: str, label: Label) -> list[str]:
        """Add a label; return the keys of the labels to remove for it."""
        if key not in self._labels:
            self._num_fresh += 1
        self._labels[key] = label
        too_many = len(self._labels) - self._max_labels
        return self._oldest(too_many) if too_many > 0 else []

    def remove(self, key: str) -> None:
        """Remove a label, if it is there."""
        self._labels.pop(key, None)

    def forget_before(self, instant: float) -> None:
        """Remove the labels older than `instant`."""
        self._labels = {key: label for key, label in self._labels.items() if label.at >= instant}

    def _oldest(self, num: int) -> list[str]:
        """Return keys to remove: each is the oldest of the tenant that has the most labels then."""
        keys_of: dict[str, list[str]] = {}
        for key in sorted(self._labels, reverse=True):
            keys_of.setdefault(self._labels[key].tenant, []).append(key)
        return [max(keys_of.values(), key=len).pop() for _ in range(num)]

    @property
    def is_worth_learning(self) -> bool:
        """True if enough labels came since the last `take`, of both outcomes."""
        if len(self._labels) < MIN_LABELS or self._num_fresh < STEP:
            return False
        return len({label.lost < 0.5 for label in self._labels.values()}) == 2

    def all(self) -> list[tuple[str, Label]]:
        """Return all labels by key."""
        return sorted(self._labels.items())

    def take(self) -> tuple[Label, ...]:
        """Return all labels for a fit, and restart the count of new ones."""
        self._num_fresh = 0
        return tuple(label for _, label in self.all())


def learn_pair(labels: Sequence[Label], base: PairModel) -> PairModel:
    """Return a model fitted to the labels, or `base` if that predicts the held-out labels better.

    The fit takes seconds; run it on a thread.

    Raises:
        TrainingUnavailable: scikit-learn is not installed.
    """
    fitted_labels = [label for number, label in enumerate(labels) if number % HELD_OUT]
    held_out = labels[::HELD_OUT]
    if not _has_both_kinds(fitted_labels):
        return base
    if squared_error(learned_of(fitted_labels, base), held_out) >= squared_error(hashed_model(base), held_out):
        return base
    return learned_of(labels, base)


def learned_of(labels: Sequence[Label], base: PairModel | None) -> PairModel:
    """Return a model of the pair for hashed features; checkpoints and openings are those of `base`.

    It uses the embedding if nearly every label has one by the same encoder. The fit takes seconds; run it on a thread.

    Args:
        labels: Labels of one pair.
        base: Present model of the pair.

    Raises:
        TrainingUnavailable: scikit-learn is not installed.
    """
    encoder, num = Counter(label.encoder for label in labels).most_common(1)[0]
    if not encoder or num < _MOST * len(labels):
        encoder = ""
    used = [label for label in labels if label.encoder == encoder] if encoder else list(labels)
    vectors = [found for label in used if encoder and (found := label.embedding) is not None]
    trainer = import_trainer()([label.outcome for label in used], vectors=np.stack(vectors) if vectors else None)
    weak, strong = labels[0].pair
    learned = trainer.fit(weak=weak, strong=strong, trained_on=IN_PLACE, encoder=encoder if vectors else "")
    learned = msgspec.structs.replace(learned, hashes_words=True)
    if base is None:
        return learned
    openings = tuple(sorted({*base.openings, *learned.openings}))
    return msgspec.structs.replace(learned, checkpoints=base.checkpoints, openings=openings)


def squared_error(model: PairModel, labels: Sequence[Label]) -> float:
    """Return the mean squared error of a model for hashed features; an unknown prompt counts as a predicted failure."""
    predicted = [
        model.predict(label.features, _vector_for(model, label), kind=label.kind).probability for label in labels
    ]
    errors = [probability - (1.0 - label.lost) for probability, label in zip(predicted, labels, strict=True)]
    return sum(error * error for error in errors) / max(len(errors), 1)


def _vector_for(model: PairModel, label: Label) -> NDArray[np.float32] | None:
    return label.embedding if label.encoder and label.encoder == model.encoder else None


def _has_both_kinds(labels: Sequence[Label]) -> bool:
    return len({label.lost < 0.5 for label in labels}) == 2
