"""Check: what a fit is worth on components that it never saw, each time with others held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.cache.fitting.fit import Fit
from gateway.cache.fitting.neighbours import Vectors
from gateway.cache.fitting.questions import Questions
from gateway.cache.fitting.stream import best_threshold_hits, play
from gateway.cache.similarity.decision import MatchModel

BOUNDS: Final = (0.005, 0.01, 0.02, 0.05)
_SHARE: Final = 0.4
_REST: Final = 0.75
_SHARES: Final = (0.25, 0.5, 1.0)


def check(questions: Questions, vectors: Vectors, seeds: Sequence[int], note: Callable[[str], None]) -> int:
    """Count the broken bounds: those below the upper 95 % limit of the error."""
    num_broken = 0
    for seed in seeds:
        is_out = held_out(questions, seed)
        fit = Fit(encoder="", seed=seed, note=lambda text: None)
        model = MatchModel(fit.run(_part(questions, ~is_out), vectors[~is_out]))
        unseen, unseen_vectors = _part(questions, is_out), vectors[is_out]
        for bound in BOUNDS:
            played = play(unseen, unseen_vectors, model, model.threshold(bound))
            high = played.error_limits(seed)[1]
            plain = best_threshold_hits(unseen, unseen_vectors, played.error_ratio)
            num_broken += high >= bound
            note(
                f"seed {seed}, {len(unseen)} unseen questions, bound {bound}: hits {played.hit_ratio:.4f}, error "
                f"{played.error_ratio:.5f}, upper limit {high:.5f}; a threshold with that error hits {plain:.4f}, "
                f"{played.hit_ratio / max(plain, 1e-9):.3f} times as many here"
            )
    return num_broken


def growth(questions: Questions, vectors: Vectors, seed: int, note: Callable[[str], None]) -> int:
    """Fit on a quarter and play ever longer streams of the rest, at the same thresholds; return the broken bounds."""
    is_out = held_out(questions, seed, _REST)
    fit = Fit(encoder="", seed=seed, note=lambda text: None)
    model = MatchModel(fit.run(_part(questions, ~is_out), vectors[~is_out]))
    num_broken = 0
    for share in _SHARES:
        mask = is_out & held_out(questions, seed + 1, share)
        unseen = _part(questions, mask)
        for bound in BOUNDS:
            played = play(unseen, vectors[mask], model, model.threshold(bound))
            high = played.error_limits(seed)[1]
            num_broken += high >= bound
            note(
                f"{len(unseen)} unseen questions after {(~is_out).sum()} fitted ones, bound {bound}: hits "
                f"{played.hit_ratio:.4f}, error {played.error_ratio:.5f}, upper limit {high:.5f}"
            )
    return num_broken


def held_out(questions: Questions, seed: int, share: float = _SHARE) -> NDArray[np.bool_]:
    """Return the mask of the questions in a share of the components, drawn by the seed."""
    names = np.unique(questions.components)
    return np.isin(questions.components, names[np.random.default_rng(seed).random(len(names)) < share])


def _part(questions: Questions, mask: NDArray[np.bool_]) -> Questions:
    places = np.flatnonzero(mask)
    return Questions(
        texts=[questions.texts[place] for place in places.tolist()],
        question_groups=questions.question_groups[mask],
        components=questions.components[mask],
    )
