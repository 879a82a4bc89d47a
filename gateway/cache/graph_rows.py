"""GraphRows: vectors in an HNSW graph (Malkov & Yashunin, 2018), for more of them than can all be compared.

FAISS keeps them in half precision, 768 bytes for 384 dimensions, which moves a cosine by about 0.0001. A graph cannot
forget: removed rows stay as stepping stones that are not given out, until whoever holds the graph moves the living
ones to a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from time import sleep
from typing import Any, Final

import faiss as untyped_faiss
import numpy as np
from numpy.typing import NDArray

from gateway.cache.flat_rows import Match
from gateway.cache.graph_links import Evening
from gateway.cache.id_map import IdMap

faiss: Any = untyped_faiss
"""Its stubs know half of it."""

LINKS: Final = 16
"""Neighbours of a row on the upper levels; on the lowest it has twice as many."""
BUILD_BREADTH: Final = 160
SEARCH_BREADTH: Final = 256
LARGE: Final = 250_000
"""Rows above which a search has to be broader."""
LARGE_BREADTH: Final = 384
_EVEN_AGAIN: Final = 1.2
"""So many times the rows that a graph had when its links were made even."""
_FEW_ROWS: Final = 1000
_BROADEN: Final = 4

_FIRST_BYTES: Final = 1024
_PLACES_AT_ONCE: Final = 1000


class GraphRows:
    """Ids and their vectors; rows are only ever added at the end.

    Not thread-safe, but for this: `settle`, `remove`, `last` and questions about ids may be called while another thread
    is in `append`, `even_out`, `nearest` or `write`, which are for one thread at a time.
    """

    def __init__(self, dimensions: int) -> None:
        index = faiss.IndexHNSWSQ(dimensions, faiss.ScalarQuantizer.QT_fp16, LINKS, faiss.METRIC_INNER_PRODUCT)
        index.train(np.zeros((1, dimensions), np.float32))
        self._hold(index, [], np.zeros(_FIRST_BYTES, np.uint8))

    def _hold(self, index: Any, exacts: list[bytes], living: NDArray[np.uint8]) -> None:
        index.hnsw.efConstruction = BUILD_BREADTH
        # Lists that pruning left short are filled up: without it a row of a dense topic may be linked from nowhere.
        index.keep_max_size_level0 = True
        self._index = index
        self._exacts = exacts
        self._living = living
        """One bit for each row, from the lowest bit of a byte up."""
        self._places = IdMap[int]()
        rows = enumerate(exacts)
        while some := list(islice(rows, _PLACES_AT_ONCE)):
            for place, exact in some:
                if self._lives(place):
                    self._places[exact] = place
            sleep(0)  # a million take most of a second, in which the event loop wants its turns
        self._untaken = len(exacts)
        self._num_even = 0
        """Rows when the last evening began."""
        self._evening: Evening | None = None

    def __len__(self) -> int:
        """How many live."""
        return len(self._places)

    def __contains__(self, exact: bytes) -> bool:
        return exact in self._places

    @property
    def exacts(self) -> list[bytes]:
        """The ids of all rows, removed ones too; not to be changed."""
        return self._exacts

    @property
    def living(self) -> NDArray[np.uint8]:
        """A copy of the bits that tell which rows live."""
        return self._living[: (len(self._exacts) + 7) // 8].copy()

    @property
    def num_dead(self) -> int:
        """Rows that only take up room, for the moment or for good."""
        return len(self._exacts) - len(self._places)

    @property
    def is_uneven(self) -> bool:
        """Whether `even_out` has something to do."""
        return self._evening is not None or len(self._exacts) > max(_FEW_ROWS, _EVEN_AGAIN * self._num_even)

    def ids(self) -> Iterable[bytes]:
        """All that live here; nothing may change meanwhile."""
        return iter(self._places)

    def vector(self, exact: bytes) -> NDArray[np.float32] | None:
        """The id's vector, as it came but for the precision."""
        place = self._places.get(exact)
        return None if place is None else self._vectors([place])[0]

    def append(self, exacts: list[bytes], rows: NDArray[np.float32]) -> int:
        """Add rows, of which none lives before `settle` says so; the place of the first. A millisecond or so each where
        they are many, and now and then far more."""
        faiss.omp_set_num_threads(1)
        begin = len(self._exacts)
        self._index.add(np.ascontiguousarray(rows))
        self._exacts += exacts
        return begin

    def even_out(self, num_rows: int) -> None:
        """Background work: go on making links even, for a tenth of a millisecond for each of so many rows."""
        if self._evening is None:
            self._evening, self._num_even = Evening(self._index), len(self._exacts)
        elif not self._evening.step(num_rows):
            self._evening = None

    def settle(self, exact: bytes, place: int) -> None:
        """The id, which does not live here yet, lives in this place from now on."""
        if place >= 8 * len(self._living):
            self._living = np.concatenate([self._living, np.zeros(max(len(self._living), place >> 3), np.uint8)])
        self._living[place >> 3] |= 1 << (place & 7)
        self._places[exact] = place
        self._untaken = max(self._untaken, place + 1)

    def remove(self, exact: bytes) -> bool:
        """Whether it was there."""
        place = self._places.pop(exact)
        if place is None:
            return False
        self._living[place >> 3] &= 255 ^ (1 << (place & 7))
        return True

    def last(self, num_rows: int) -> tuple[list[bytes], NDArray[np.float32]]:
        """Up to so many of the ids that live here, with their vectors; others once those have been removed."""
        while self._untaken > 0 and not self._lives(self._untaken - 1):
            self._untaken -= 1
        places: list[int] = []
        place = self._untaken
        while place > 0 and len(places) < num_rows:
            place -= 1
            if self._lives(place):
                places.append(place)
        return [self._exacts[place] for place in places], self._vectors(places)

    def nearest(self, vector: NDArray[np.float32], count: int) -> list[Match]:
        """Up to `count` matches, best first; a near one is rarely missed."""
        faiss.omp_set_num_threads(1)
        breadth = max(SEARCH_BREADTH if len(self._exacts) < LARGE else LARGE_BREADTH, count)
        while True:
            # With removed rows about, all that the search has seen is asked for: what it merely passed on its way to a
            # crowd of them is not the nearest that lives.
            asked = breadth if self.num_dead else count
            parameters = faiss.SearchParametersHNSW(efSearch=breadth)
            cosines, places = self._index.search(vector[None], asked, params=parameters)
            living = (match for match in zip(cosines[0], places[0], strict=True) if self._lives(match[1]))
            matches = [(float(cosine), self._exacts[place]) for cosine, place in islice(living, count)]
            if len(matches) >= min(count, len(self)) or breadth >= len(self._exacts):
                return matches
            breadth *= _BROADEN

    def write(self, write: Callable[[bytes], int]) -> None:
        """Hand the graph over in pieces. Nothing may be added meanwhile; searches and removals do no harm."""
        faiss.write_index(self._index, faiss.PyCallbackIOWriter(write))

    @classmethod
    def read(
        cls, read: Callable[[int], bytes], dimensions: int, exacts: list[bytes], living: NDArray[np.uint8]
    ) -> GraphRows:
        """What `write` wrote, whose bytes are known to be whole. Raises ValueError for a graph of another form."""
        try:
            index = faiss.read_index(faiss.PyCallbackIOReader(read))
        except RuntimeError as error:  # FAISS has no other
            raise ValueError(f"FAISS cannot read its part: {error}") from error
        if not isinstance(index, faiss.IndexHNSWSQ) or (index.d, index.ntotal) != (dimensions, len(exacts)):
            raise ValueError("the graph has not the rows or the dimensions that were told")
        rows = cls.__new__(cls)
        rows._hold(index, exacts, np.concatenate([living, np.zeros(_FIRST_BYTES, np.uint8)]))
        return rows

    def _lives(self, place: int) -> bool:
        """-1, which a search that found too little fills up with, does not."""
        living = self._living
        return 0 <= place < 8 * len(living) and bool(living[place >> 3] >> (place & 7) & 1)

    def _vectors(self, places: list[int]) -> NDArray[np.float32]:
        rows = [self._index.reconstruct(place) for place in places]
        return np.array(rows, np.float32).reshape(len(places), self._index.d)
