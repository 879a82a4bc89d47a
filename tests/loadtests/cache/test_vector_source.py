"""Vectors to fill an index with: of unit length, the same again, and queries near what they were made from."""

from __future__ import annotations

import numpy as np
import pytest

from loadtests.cache.vector_source import Drawn, Jittered, Source, unit


def sources() -> list[Source]:
    rows = unit(np.random.default_rng(5).standard_normal((50, 32), np.float32))
    return [Drawn(32, 20, 7), Jittered(rows, 7)]


@pytest.mark.parametrize("source", sources())
def test_blocks_are_unit_vectors_that_come_again(source: Source) -> None:
    block = source.block(3, 40)
    np.testing.assert_allclose(np.linalg.norm(block, axis=1), 1.0, atol=1e-5)
    assert np.array_equal(block, source.block(3, 40))
    assert not np.array_equal(block, source.block(4, 40))


@pytest.mark.parametrize("source", sources())
def test_a_query_is_nearest_to_the_row_it_was_made_from(source: Source) -> None:
    block = source.block(0, 40)
    queries = source.near(block, np.random.default_rng(1))
    nearest = (queries @ block.T).argmax(axis=1)
    assert (nearest == np.arange(40)).mean() > 0.9
