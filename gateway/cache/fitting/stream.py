"""Stream: questions one after another into an empty cache, as a gateway meets them; what is given and wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.cache.fitting.neighbours import earlier_neighbours
from gateway.cache.fitting.questions import Questions
from gateway.cache.index.vector_index import VectorIndex
from gateway.cache.similarity.decision import MatchModel
from gateway.cache.similarity.wording import Wording

_CONTEXT: Final = b"one"
_RESAMPLES: Final = 1000
_NONE_SEEN: Final = 3.689
"""The upper 95 % limit of the number of errors when none was seen: -ln(0.025)."""


@dataclass(frozen=True, slots=True)
class Played:
    """The outcome of each request of a stream; errors are over all requests."""

    hits: NDArray[np.bool_]
    wrong: NDArray[np.bool_]
    groups: NDArray[np.int64]

    @property
    def hit_ratio(self) -> float:
        """Similar answers given, over all requests."""
        return float(self.hits.mean())

    @property
    def error_ratio(self) -> float:
        """Wrong answers, over all requests."""
        return float(self.wrong.mean())

    def error_limits(self, seed: int = 1) -> tuple[float, float]:
        """Compute the error's 95 % limits: percentiles over components drawn with replacement.

        The upper limit is never below the one for no wrong answer at all.
        """
        names, place = np.unique(self.groups, return_inverse=True)
        sizes = np.bincount(place)
        wrong = np.bincount(place, self.wrong)
        rng = np.random.default_rng(seed)
        errors = []
        for _ in range(_RESAMPLES):
            drawn = rng.poisson(1.0, len(names))
            errors.append(float(drawn @ wrong) / max(1.0, float(drawn @ sizes)))
        low, high = np.percentile(errors, [2.5, 97.5])
        return float(low), max(float(high), _NONE_SEEN / len(names))


def play(
    questions: Questions, vectors: NDArray[np.float32], model: MatchModel, threshold: float, encoder_id: str = ""
) -> Played:
    """Insert on a miss; give the nearest answer whose match probability reaches the threshold."""
    index = VectorIndex(vectors.shape[1], encoder_id)
    hits, wrong = np.zeros(len(questions), bool), np.zeros(len(questions), bool)
    wordings: dict[int, Wording] = {}
    for number, vector in enumerate(vectors):
        prompt = Wording.of(questions.texts[number])
        near = index.nearest(_CONTEXT, vector, 2)
        if near:
            nearest_index = int.from_bytes(near[0].exact, "big")
            runner_up = near[1].similarity if len(near) > 1 else None
            if model.probability_of(prompt, wordings[nearest_index], near[0].similarity, runner_up) >= threshold:
                hits[number] = True
                wrong[number] = questions.question_groups[nearest_index] != questions.question_groups[number]
                continue
        wordings[number] = prompt
        index.add(_CONTEXT, number.to_bytes(8, "big"), vector)
        while index.compact():
            pass
    return Played(hits, wrong, questions.components)


def best_threshold_hits(questions: Questions, vectors: NDArray[np.float32], error_ratio: float) -> float:
    """Hits of the one cosine threshold with that error, every question being inserted: what there is to beat."""
    near = earlier_neighbours(vectors, 1)
    order = np.argsort(-near.similarities[:, 0], kind="stable")
    wrong = questions.question_groups[order] != questions.question_groups[near.places[order, 0]]
    errors = np.cumsum(wrong) / len(order)
    return float(np.searchsorted(errors, error_ratio, side="right")) / len(order)
