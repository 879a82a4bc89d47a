"""Non-negative least squares over a stream of measurements. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_Vector = npt.NDArray[np.float64]


class LinearFit:
    """Linear model, target = sum of terms times features, in which old measurements fade."""

    def __init__(self, num_terms: int) -> None:
        self._num_terms = num_terms
        self._gram = [0.0] * (num_terms * num_terms)
        self._moments = [0.0] * num_terms
        self.terms: list[float] = [0.0] * num_terms
        """Coefficients of the last `solve`; none is negative."""
        self.weight = 0.0
        """Sum of the measurements' weights, where a new one counts 1."""

    def fade(self, decay: float) -> None:
        """Multiply the weight of all measurements so far by `decay`."""
        self._gram = [decay * old for old in self._gram]
        self._moments = [decay * old for old in self._moments]
        self.weight *= decay

    def observe(self, features: Sequence[float], target: float) -> None:
        """Add one measurement."""
        for row, left in enumerate(features):
            self._moments[row] += left * target
            for column, right in enumerate(features):
                self._gram[row * self._num_terms + column] += left * right
        self.weight += 1.0

    def plus(self, other: LinearFit, terms: Sequence[int]) -> LinearFit:
        """Return a fit to the measurements of both.

        Args:
            other: Fit whose terms are a subset of this one's.
            terms: Index in this fit of each term of `other`.
        """
        found = LinearFit(self._num_terms)
        found._gram, found._moments = self._gram.copy(), self._moments.copy()
        for row, term in enumerate(terms):
            found._moments[term] += other._moments[row]
            for column, beside in enumerate(terms):
                found._gram[term * self._num_terms + beside] += other._gram[row * other._num_terms + column]
        found.weight = self.weight + other.weight
        return found

    def predict(self, features: Sequence[float]) -> float:
        """Return the target predicted by the last terms."""
        return sum(term * feature for term, feature in zip(self.terms, features, strict=True))

    def solve(self) -> None:
        """Fit the terms by ridge least squares; negative ones are dropped one by one and the rest is refitted."""
        gram: _Vector = np.array(self._gram).reshape(self._num_terms, self._num_terms)
        moments: _Vector = np.array(self._moments)
        ridge = 1e-6 * float(np.trace(gram))
        self.terms = [0.0] * self._num_terms
        retained = list(range(self._num_terms)) if ridge > 0.0 else []
        while retained:
            square = gram[np.ix_(retained, retained)] + ridge * np.eye(len(retained))
            solution = np.linalg.solve(square, moments[retained])
            worst = int(np.argmin(solution))
            if solution[worst] >= 0.0:
                for index, value in zip(retained, solution.tolist(), strict=True):
                    self.terms[index] = value
                return
            del retained[worst]
