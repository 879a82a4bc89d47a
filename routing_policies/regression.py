"""Least squares that never answers with a negative coefficient, learned online; features and targets are arguments."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import Final

_RIDGE: Final = 2.0
"""How many samples the prior is worth."""
_SWEEPS: Final = 3
_OUTLIER_RATIO: Final = 3.0
"""A target counts as so many times its prediction at most: one hiccup is not a new speed."""
_TINY: Final = 1e-9


class NonNegativeRegression:
    """target = Σ coefficient·feature, in proportion: an error of 10 % weighs the same for small targets and large ones.

    Samples fade by `decay` each. `prior` is where the coefficients start and what they are drawn to where the samples
    say little. Solved by coordinate descent from the last solution, every `refit_every` samples.
    """

    __slots__ = ("_decay", "_gram", "_moments", "_num", "_num_samples", "_prior", "_refit_every", "_ridge", "terms")

    def __init__(self, prior: Sequence[float], scales: Sequence[float], *, decay: float, refit_every: int = 4) -> None:
        """`scales`: a usual size of each feature, so that the prior holds all of them with equal strength."""
        num = self._num = len(prior)
        self._decay = decay
        self._refit_every = refit_every
        self._prior = list(prior)
        unit = max(sum(term * scale for term, scale in zip(prior, scales, strict=True)), _TINY)
        self._ridge = [_RIDGE * (scale / unit) ** 2 for scale in scales]
        self._gram = [[0.0] * num for _ in range(num)]
        self._moments = [0.0] * num
        self._num_samples = 0
        self.terms = list(prior)

    @property
    def num_samples(self) -> int:
        """How many were seen in all."""
        return self._num_samples

    def predict(self, features: Sequence[float]) -> float:
        """The expected target."""
        # A third of a loop's price, and asked for several times a request.
        total: float = sum(map(mul, self.terms, features))
        return total

    def observe(self, features: Sequence[float], target: float) -> None:
        """Learn from one sample, `target` > 0."""
        predicted = self.predict(features)
        target = min(target, _OUTLIER_RATIO * predicted) if self._num_samples >= _MIN_SAMPLES else target
        unit = 1.0 / max(predicted, target, _TINY)
        decay, moments = self._decay, self._moments
        scaled = [feature * unit for feature in features]
        aim = target * unit
        for row, left in enumerate(scaled):
            moments[row] = decay * moments[row] + left * aim
            line = self._gram[row]
            for column, right in enumerate(scaled):
                line[column] = decay * line[column] + left * right
        self._num_samples += 1
        if self._num_samples % self._refit_every == 0 or self._num_samples < _MIN_SAMPLES:
            self._refit()

    def _refit(self) -> None:
        terms, gram, moments, ridge, prior = self.terms, self._gram, self._moments, self._ridge, self._prior
        for _ in range(_SWEEPS):
            for row in range(self._num):
                line = gram[row]
                rest = moments[row] + ridge[row] * prior[row]
                for column, term in enumerate(terms):
                    rest -= line[column] * term
                pull = line[row] + ridge[row]
                terms[row] = max(0.0, (rest + line[row] * terms[row]) / pull)


_MIN_SAMPLES: Final = 16
