"""Learning in place: what audits of a small share of the traffic teach, beside a predictor that knew every outcome.

A stream is drawn from the training half of a mix of tasks that the shipped predictor never saw. A share of it is
audited: both models' outcomes of those requests become labels of the same buffer, and are learned from by the same
code, as in a running gateway. Both predictors are evaluated on prompts that neither saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from loadtests.harness.card import Value
from loadtests.routing.routing_curve import mean_and_half_width
from loadtests.routing.routing_public import DataSet, joined, need_of, random_split, trained_on
from routing_policies.quality.hashing import hashed_features
from routing_policies.quality.model import PairModel
from routing_policies.quality.training.label import Label, label_of
from routing_policies.quality.training.learning import LabelBuffer, learn_pair

REQUESTS: Final = 50_000
AUDIT_RATIO: Final = 0.02


class InPlace(NamedTuple):
    """APGR of one simulated stream."""

    learned: float
    whole: float
    """Of a predictor trained on every outcome of the mix."""
    num_labels: int


def in_place_results(sets: Sequence[DataSet], base: PairModel, num_streams: int) -> dict[str, Value]:
    """Means over streams, each with a split of its own, and the half width of their 95 % intervals."""
    mix = joined(sets)
    streams = [learned_in_place(mix, base, seed) for seed in range(1, num_streams + 1)]
    gap, gap_width = mean_and_half_width([one.whole - one.learned for one in streams])
    learned, learned_width = mean_and_half_width([one.learned for one in streams])
    return {
        "in_place_apgr": learned,
        "in_place_apgr_interval": learned_width,
        "in_place_apgr_whole": float(np.mean([one.whole for one in streams])),
        "in_place_gap": gap,
        "in_place_gap_interval": gap_width,
        "in_place_requests": REQUESTS,
        "in_place_labels": float(np.mean([one.num_labels for one in streams])),
        "in_place_streams": len(streams),
    }


def learned_in_place(mix: DataSet, base: PairModel, seed: int) -> InPlace:
    """One stream."""
    rng = np.random.default_rng(seed)
    train, test = random_split(mix, seed)
    stream = rng.choice(train, REQUESTS)
    audited = stream[rng.random(REQUESTS) < AUDIT_RATIO]
    buffer = LabelBuffer()
    labels: Sequence[Label] = ()
    for number, row in enumerate(audited):
        label = label_of(
            hashed_features(mix.features[row]),
            (base.weak, base.strong),
            lost=max(float(mix.scores.large[row] - mix.scores.small[row]), 0.0),
            source="audit",
            at=float(number),
            vector=mix.vectors[row],
            encoder="e",
        )
        for old in buffer.add(f"{number:08}", label):
            buffer.remove(old)
        if buffer.is_worth_learning:
            labels = buffer.take()  # each time is learned anew from all there are, so that the last one is enough
    model = learn_pair(labels, base)
    scores = mix.scores.take(test)
    hashed = replace(mix, features=[hashed_features(one) for one in mix.features])
    return InPlace(
        scores.apgr(need_of(model, hashed if model.hashes_words else mix, test)),
        scores.apgr(need_of(trained_on(mix, train), mix, test)),
        len(audited),
    )
