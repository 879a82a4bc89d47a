"""Labels of the made-up world, as a gateway makes them."""

from __future__ import annotations

import numpy as np

from routing_policies.quality.hashing import hashed_features
from routing_policies.quality.training.label import Label, Source, label_of
from tests.routing_policies.quality.prompts import outcomes

PAIR = ("penstock-small", "penstock-large")


def labels(
    seed: int,
    num: int,
    *,
    pair: tuple[str, str] = PAIR,
    at: float = 1000.0,
    source: Source = "shadow",
    encoder: str = "",
) -> list[Label]:
    """One a second from `at`; with an encoder each has a vector that shows what the small model can do."""
    rng = np.random.default_rng(seed)
    made = []
    for number, (_, outcome) in enumerate(outcomes(seed, num)):
        vector = rng.normal(size=16).astype(np.float32) * 0.1
        vector[0] += 1.0 if outcome.good >= 0.5 else -1.0
        made.append(
            label_of(
                hashed_features(outcome.features),
                pair,
                lost=max(outcome.lost, 0.0),
                source=source,
                at=at + number,
                vector=vector / np.linalg.norm(vector) if encoder else None,
                encoder=encoder,
            )
        )
    return made
