"""Counts of lookups by similarity, in bounded memory."""

from __future__ import annotations

import pytest

from gateway.cache.audit.similarities import LOWEST, NUM_BINS, Similarities


def bins(*similarities: float) -> list[int]:
    found = Similarities()
    for similarity in similarities:
        found.note("served", similarity)
    return [place for place, count in enumerate(found.shown()["served"]) for _ in range(int(count))]


def test_the_edges_of_the_range_have_a_bin_and_so_has_what_is_outside() -> None:
    assert bins(1.0, 1.0001) == [NUM_BINS - 1] * 2, "rounding makes a cosine above 1"
    assert bins(LOWEST, 0.2, -1.0) == [0, 0, 0]


def test_each_lookup_counts_at_or_above_the_edge_that_is_shown() -> None:
    found = Similarities()
    found.note("refused", 0.905)
    shown = found.shown()
    (place,) = [place for place, count in enumerate(shown["refused"]) if count]
    assert shown["from"][place] <= 0.905 < shown["from"][place] + (1.0 - LOWEST) / NUM_BINS
    assert sum(shown["served"]) == 0
    assert shown["from"][0] == pytest.approx(LOWEST)


def test_what_was_shown_does_not_change_later() -> None:
    found = Similarities()
    shown = found.shown()
    found.note("served", 0.9)
    assert sum(shown["served"]) == 0
