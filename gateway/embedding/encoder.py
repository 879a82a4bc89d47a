"""TextEncoder: what turns texts into unit vectors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, Protocol

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


_PRECISION: Final = re.compile(r"-(?:fp32|int8)(?:-r\d+)?$")


def have_same_weights(first: str, second: str) -> bool:
    """Whether two encoders' ids differ in precision and revision only: that changes similarities by less than a
    thousandth."""
    return first == second or _weights_of(first) == _weights_of(second)


def _weights_of(encoder_id: str) -> str:
    return _PRECISION.sub("", encoder_id).lower()
