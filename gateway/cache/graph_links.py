"""Links of a graph made more even: no row may be linked from next to nowhere.

A search finds a row by the rows that link to it. Among many rows about one topic a few are near everything and linked
from everywhere, and others are among the nearest of hardly any row (hubs and antihubs: Radovanović et al., 2010); the
latter are what a search misses. An evening goes through the rows of the lowest level that have few incoming links and
gives them places in the lists of their own neighbours, in place of rows that have many.
"""

from __future__ import annotations

from typing import Any, Final

import faiss as untyped_faiss
import numpy as np
from numpy.typing import NDArray

faiss: Any = untyped_faiss
"""Its stubs know half of it."""

FEW_LINKS: Final = 24
"""Incoming ones, of 32 on average."""
_MANY_MORE: Final = 2
_KEPT: Final = 4
"""Of each list: its nearest, which lead everywhere."""
_COUNTED_AT_ONCE: Final = 64
"""Rows whose links are counted in the time of lifting one row."""

Places = NDArray[np.int32]


class Evening:
    """One pass over the rows that a graph has now. Nobody else may add rows during a `step`; searches do no harm."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._width = index.hnsw.nb_neighbors(0)
        self._degrees = np.zeros(index.ntotal, np.int64)
        self._num_counted = 0
        self._low: NDArray[np.int64] | None = None
        """Rows with few links that were not lifted yet."""

    def step(self, num_rows: int) -> bool:
        """Go on for the time of so many rows, a tenth of a millisecond each; False once it is over."""
        hnsw = self._index.hnsw
        links = faiss.rev_swig_ptr(hnsw.neighbors.data(), hnsw.neighbors.size())
        begins = faiss.rev_swig_ptr(hnsw.offsets.data(), hnsw.offsets.size())
        if self._num_counted < len(self._degrees):
            self._count(links, begins, num_rows * _COUNTED_AT_ONCE)
            return True
        if self._low is None:
            self._low = np.flatnonzero(self._degrees < FEW_LINKS)
        for row in self._low[:num_rows].tolist():
            self._lift(row, links, begins)
        self._low = self._low[num_rows:]
        return len(self._low) > 0

    def _count(self, links: Places, begins: NDArray[np.uint64], num_rows: int) -> None:
        begin = self._num_counted
        self._num_counted = min(len(self._degrees), begin + num_rows)
        lists = begins[begin : self._num_counted, None].astype(np.int64) + np.arange(self._width)
        linked = links[lists]
        np.add.at(self._degrees, linked[(linked >= 0) & (linked < len(self._degrees))], 1)

    def _lift(self, row: int, links: Places, begins: NDArray[np.uint64]) -> None:
        """Let the row's neighbours link back to it, the nearest first, until it has enough links."""
        degrees, own = self._degrees, int(begins[row])
        for host in links[own : own + self._width].tolist():
            if degrees[row] >= FEW_LINKS:
                return
            if 0 <= host < len(degrees):
                begin = int(begins[host])
                self._link(row, links[begin : begin + self._width])

    def _link(self, row: int, listed: Places) -> None:
        """Put the row into the list, where there is room or in place of the most linked one, unless it is there."""
        degrees = self._degrees
        if (listed == row).any():
            return
        free = np.flatnonzero(listed < 0)
        if len(free):
            place = int(free[0])
        else:
            known = np.where(listed < len(degrees), listed, row)
            place = _KEPT + int(degrees[known[_KEPT:]].argmax())
            if degrees[known[place]] <= FEW_LINKS + _MANY_MORE:
                return
            degrees[known[place]] -= 1
        listed[place] = row
        degrees[row] += 1
