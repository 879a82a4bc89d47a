"""Fit of novelty guards: the common range of nearly all training prompts, whatever their wording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from routing_policies.quality.features import NUM_BOUNDED, Features
from routing_policies.quality.guard import NoveltyGuard
from routing_policies.quality.training.feature_table import rounded
from routing_policies.quality.training.members import Fold

MARGIN: Final = 0.1
"""Margin on a squashed count: a little more than twice the maximum of the training is a novelty."""
MOST_UNKNOWN: Final = 0.95
"""Limit of the usual share of unknown words: a text without any known one is a novelty, whatever the training holds."""


def fitted_guard(features: Sequence[Features], folds: Sequence[Fold]) -> NoveltyGuard:
    """Return the guard of these prompts; the folds determine how many new words are usual."""
    unknown = np.zeros(len(features))
    for out in folds:
        others = _plain([one for one, is_out in zip(features, out, strict=True) if not is_out])
        unknown[out] = [others.unknown_share(features[row]) for row in np.flatnonzero(out).tolist()]
    numbers = np.array([one.numbers[:NUM_BOUNDED] for one in features])
    return msgspec.structs.replace(
        _plain(features),
        max_unknown=round(min(float(np.quantile(unknown, 0.99)), MOST_UNKNOWN), 3),
        lowest=tuple(rounded(numbers.min(0) - MARGIN)),
        highest=tuple(rounded(numbers.max(0) + MARGIN)),
    )


def _plain(features: Sequence[Features]) -> NoveltyGuard:
    counts = Counter(shape for one in features for shape in set(one.shapes))
    words = frozenset(word for word, count in counts.items() if count >= 2)
    return NoveltyGuard(words=words, max_unknown=1.0, lowest=(), highest=())
