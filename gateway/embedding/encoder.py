"""TextEncoder: the interface of encoders that turn texts into unit vectors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""Vector of shape `[dimensions]` and length 1; the dot product of two is their cosine similarity."""

Precision = Literal["fp32", "int8"]


class TextEncoder(Protocol):
    """Encoder of texts; its `id` is stored with vectors, and vectors of two encoders are never compared."""

    @property
    def id(self) -> str:
        """Name of weights, precision and graph revision."""

    @property
    def dimensions(self) -> int:
        """Length of a vector."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return embeddings, `[len(texts), dimensions]`, in the order of the texts. Blocks; one thread at a time.

        Rows have length 1; the row of a text that the encoder cannot read is zero.
        """


_PRECISION: Final = re.compile(r"-(?:fp32|int8)(?:-r\d+)?$")


def have_same_weights(first: str, second: str) -> bool:
    """Return whether two encoder ids differ at most in precision and revision.

    Such a difference changes similarities by less than a thousandth.
    """
    return first == second or _weights_of(first) == _weights_of(second)


def _weights_of(encoder_id: str) -> str:
    return _PRECISION.sub("", encoder_id).lower()
