"""Links of a graph: every row is linked from several others, and what the lists say stays sound."""

from __future__ import annotations

from typing import Any

import faiss as untyped_faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.cache.graph_links import FEW_LINKS, Evening
from gateway.cache.graph_rows import GraphRows
from loadtests.vector_source import Drawn

faiss: Any = untyped_faiss

DIMENSIONS = 96
NUM_ROWS = 3000


def rows_of_one_topic() -> NDArray[np.float32]:
    """Some of them are near everything: what hubs come from."""
    return Drawn(DIMENSIONS, 1, 1).block(0, NUM_ROWS)


def lists_of(graph: GraphRows) -> NDArray[np.int32]:
    """A copy of who links to whom, row by row."""
    hnsw = graph._index.hnsw
    links = faiss.rev_swig_ptr(hnsw.neighbors.data(), hnsw.neighbors.size())
    begins = faiss.vector_to_array(hnsw.offsets)[:-1].astype(np.int64)
    copied: NDArray[np.int32] = links[begins[:, None] + np.arange(hnsw.nb_neighbors(0))].copy()
    return copied


def incoming(lists: NDArray[np.int32]) -> NDArray[np.int64]:
    return np.bincount(lists[lists >= 0], minlength=len(lists))


@pytest.fixture(scope="module")
def graph() -> GraphRows:
    found = GraphRows(DIMENSIONS)
    rows = rows_of_one_topic()
    found.append([b"%d" % number for number in range(NUM_ROWS)], rows)
    for number in range(NUM_ROWS):
        found.settle(b"%d" % number, number)
    return found


def test_rows_that_hardly_any_row_led_to_are_linked_and_found(graph: GraphRows) -> None:
    before = lists_of(graph)
    assert graph.is_uneven
    while graph.is_uneven:
        graph.even_out(32)
    after = lists_of(graph)

    assert (incoming(before) < FEW_LINKS // 2).sum() > 200
    assert (incoming(after) < FEW_LINKS // 2).sum() < 0.2 * (incoming(before) < FEW_LINKS // 2).sum()
    for row, listed in enumerate(after):
        linked = listed[listed >= 0]
        assert (listed >= 0).sum() == len(set(linked.tolist())), "nobody twice"
        assert row not in linked
        assert (listed[len(linked) :] == -1).all(), "no gaps"
    assert (after[:, :4] == before[:, :4]).mean() > 0.9, "the nearest stay"
    rows = rows_of_one_topic()
    assert all(graph.nearest(rows[number], 1)[0][1] == b"%d" % number for number in range(0, NUM_ROWS, 50))


def test_rows_that_come_during_a_pass_are_left_to_the_next(graph: GraphRows) -> None:
    evening = Evening(graph._index)
    assert evening.step(1)
    rows = rows_of_one_topic()
    graph.append([b"late %d" % number for number in range(300)], -rows[:300])
    while evening.step(64):
        pass
    lists = lists_of(graph)
    assert all(len(set(listed[listed >= 0].tolist())) == (listed >= 0).sum() for listed in lists)


def test_a_graph_is_made_even_again_when_it_has_grown(graph: GraphRows) -> None:
    while graph.is_uneven:
        graph.even_out(64)
    num_even = graph._num_even
    rows = -rows_of_one_topic()[: num_even // 5 + 10]
    graph.append([b"more %d" % number for number in range(len(rows))], rows)
    assert graph.is_uneven
