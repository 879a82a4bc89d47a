"""A recognizer of two kinds of work by one word each."""

from __future__ import annotations

from routing_policies.quality.features import NUMBERS
from routing_policies.quality.recognition import KindRecognizer

RECOGNIZER = KindRecognizer(
    kinds=("sums", "tales"),
    biases=(0.0, 0.0),
    numbers=((0.0,) * len(NUMBERS),) * 2,
    words={"add": (2.0, 0.0), "king": (0.0, 2.0)},
    least_shares=(0.8, 0.95),
    most_unknown=(0.5, 0.5),
    shifts=(1.5, -1.0),
)
