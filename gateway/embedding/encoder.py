"""TextEncoder: what turns texts into unit vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""`[dimensions]`, of length 1: the dot product of two is their cosine."""

Precision = Literal["fp32", "int8"]


class TextEncoder(Protocol):
    """`id` names weights and precision and is stored with vectors: those of two encoders are never compared."""

    @property
    def id(self) -> str:
        """Weights, precision and revision of the graph."""

    @property
    def dimensions(self) -> int:
        """Length of a vector."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """`[len(texts), dimensions]`, rows of length 1 in the order of the texts. Blocks; one thread at a time.

        The row of a text that the encoder cannot read is zero.
        """
