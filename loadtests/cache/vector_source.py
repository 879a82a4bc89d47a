"""Unit vectors to fill an index with, block by block, the same for the same seed; and queries near some of them.

Drawn ones stand for questions about topics: a topic is a normal draw, a question another one around it, both stretched
along the axes by (k + 8)^-0.2, which spreads them over about as many directions as the vectors of real questions. Real
ones are the rows of a given matrix, each repeated with a jitter whose cosine to its row is that of a paraphrase.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

_TOPIC_WEIGHT: Final = 1.0
_QUESTION_WEIGHT: Final = 0.75
_QUERY_WEIGHT: Final = 0.45
"""Of the draw that is added to a row for a query: a cosine near 0.9."""
_ZIPF: Final = 0.9


class Source(Protocol):
    """Blocks may be requested again and are the same then."""

    def block(self, number: int, num_rows: int) -> Matrix:
        """Some of the rows."""

    def near(self, rows: Matrix, rng: np.random.Generator) -> Matrix:
        """Queries, one near each row."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Clustered draws."""

    dimensions: int
    num_topics: int
    seed: int

    def block(self, number: int, num_rows: int) -> Matrix:
        """Questions about topics, of which some are sent about far more than others."""
        rng = np.random.default_rng((self.seed, 1, number))
        popularity = 1.0 / np.arange(1, self.num_topics + 1) ** _ZIPF
        topics = rng.choice(self.num_topics, num_rows, p=popularity / popularity.sum())
        return unit(_TOPIC_WEIGHT * self._topics[topics] + _QUESTION_WEIGHT * self._draw(rng, num_rows))

    def near(self, rows: Matrix, rng: np.random.Generator) -> Matrix:
        """Each row and a draw."""
        return unit(rows + _QUERY_WEIGHT * unit(self._draw(rng, len(rows))))

    @cached_property
    def _topics(self) -> Matrix:
        return self._draw(np.random.default_rng((self.seed, 0)), self.num_topics)

    def _draw(self, rng: np.random.Generator, num_rows: int) -> Matrix:
        stretch = (np.arange(self.dimensions, dtype=np.float32) + 8) ** np.float32(-0.2)
        return rng.standard_normal((num_rows, self.dimensions), np.float32) * stretch


@dataclass(frozen=True)
class Jittered:
    """The rows of a matrix over and over, each time a little elsewhere."""

    rows: Matrix
    seed: int

    def block(self, number: int, num_rows: int) -> Matrix:
        """The next rows; a row moves towards another one and a little in every direction."""
        rng = np.random.default_rng((self.seed, 1, number))
        places = (number * num_rows + np.arange(num_rows)) % len(self.rows)
        return self._moved(self.rows[places], rng, 0.6)

    def near(self, rows: Matrix, rng: np.random.Generator) -> Matrix:
        """Each row, moved less."""
        return self._moved(rows, rng, 0.35)

    def _moved(self, rows: Matrix, rng: np.random.Generator, weight: float) -> Matrix:
        others = self.rows[rng.integers(0, len(self.rows), len(rows))]
        noise = unit(rng.standard_normal(rows.shape, np.float32))
        return unit(rows + weight * others + 0.5 * weight * noise)


def unit(rows: Matrix) -> Matrix:
    """The rows' directions."""
    lengths: Matrix = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths
