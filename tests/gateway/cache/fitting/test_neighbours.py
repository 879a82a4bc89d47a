"""Nearest earlier questions of a stream."""

from __future__ import annotations

import numpy as np

from gateway.cache.fitting.neighbours import earlier_neighbours


def test_neighbours_came_before_and_are_the_closest() -> None:
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(700, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = earlier_neighbours(vectors, 3)
    for number in (0, 1, 2, 300, 699):
        cosines = vectors[:number] @ vectors[number]
        best = np.argsort(-cosines)[:3].tolist()
        assert [int(place) for place in near.places[number] if place >= 0] == best
