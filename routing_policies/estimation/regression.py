"""Online least squares with non-negative coefficients. Pure: features and targets are arguments."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import Final

_RIDGE: Final = 2.0
"""Weight of the prior, in samples."""
_SWEEPS: Final = 3
_OUTLIER_RATIO: Final = 3.0
"""Bound on a target as a multiple of its prediction; one outlier is no new speed."""
_TINY: Final = 1e-9
_MAX_WEIGHT: Final = 1e9


class NonNegativeRegression:
    """Model target = Σ coefficient · feature, with relative errors: 10 % weighs the same for small and large targets.

    Samples fade by `decay` each. The coefficients start at `prior` and are drawn to it where samples are scarce.
    Coordinate descent updates the last solution every `refit_every` samples.
    """

    __slots__ = ("_decay", "_gram", "_moments", "_num_samples", "_prior", "_refit_every", "_ridge", "_weight", "terms")

    def __init__(self, prior: Sequence[float], scales: Sequence[float], *, decay: float, refit_every: int = 4) -> None:
        """Create a model at its prior.

        Args:
            prior: Initial coefficients.
            scales: Usual size of each feature, so the prior binds all coefficients equally.
            decay: Weight of past samples per new one.
            refit_every: Number of samples between two updates of the coefficients.
        """
        num = len(prior)
        self._decay = decay
        self._refit_every = refit_every
        self._prior = list(prior)
        unit = max(sum(term * scale for term, scale in zip(prior, scales, strict=True)), _TINY)
        self._ridge = [_RIDGE * (scale / unit) ** 2 for scale in scales]
        self._gram = [[0.0] * num for _ in range(num)]
        self._moments = [0.0] * num
        self._weight = 1.0
        """Weight of the last sample; earlier ones have less and less."""
        self._num_samples = 0
        self.terms = list(prior)
        """Coefficients; the list is changed in place."""

    @property
    def num_samples(self) -> int:
        """Number of samples so far."""
        return self._num_samples

    def predict(self, features: Sequence[float]) -> float:
        """Return the expected target."""
        # A third of a loop's cost, and called several times a request.
        total: float = sum(map(mul, self.terms, features))
        return total

    def observe(self, features: Sequence[float], target: float, predicted: float | None = None) -> None:
        """Learn from one sample.

        Args:
            features: The features.
            target: The measured value, above 0.
            predicted: Result of `predict` for these features, if the caller has it.
        """
        if predicted is None:
            predicted = self.predict(features)
        if target > _OUTLIER_RATIO * predicted and self._num_samples >= _MIN_SAMPLES:
            target = _OUTLIER_RATIO * predicted
        size = target if target > predicted else predicted
        unit = 1.0 / (size if size > _TINY else _TINY)
        gram, moments = self._gram, self._moments
        # Instead of fading every sum, new samples weigh more: a feature that is 0 then costs nothing.
        weight = self._weight = self._weight / self._decay
        aim = target * unit
        scaled: list[tuple[int, float]] = []
        for row, feature in enumerate(features):
            if not feature:
                continue
            right = feature * unit
            scaled.append((row, right))
            left = weight * right
            moments[row] += left * aim
            line = gram[row]
            for column, other in scaled:
                line[column] += left * other
        if weight > _MAX_WEIGHT:
            self._bring_back()
        self._num_samples += 1
        if self._num_samples % self._refit_every == 0 or self._num_samples < _MIN_SAMPLES:
            self._refit()

    def _refit(self) -> None:
        terms, gram, moments, prior, weight = self.terms, self._gram, self._moments, self._prior, self._weight
        known: list[tuple[int, list[float], float, float, float]] = []
        for row, line in enumerate(gram):
            own = line[row]
            if not own:  # the feature never occurred: its term stays unchanged
                continue
            for other in known:  # only one half of the symmetric sums is kept up to date
                other[1][row] = line[other[0]]
            held = weight * self._ridge[row]
            known.append((row, line, own, own + held, moments[row] + held * prior[row]))
        for _ in range(_SWEEPS):
            for row, line, own, whole, wanted in known:
                found = (wanted - sum(map(mul, line, terms)) + own * terms[row]) / whole
                terms[row] = found if found > 0.0 else 0.0

    def _bring_back(self) -> None:
        """Rescale the sums before they overflow."""
        weight = self._weight
        self._moments = [moment / weight for moment in self._moments]
        self._gram = [[cell / weight for cell in line] for line in self._gram]
        self._weight = 1.0


_MIN_SAMPLES: Final = 16
