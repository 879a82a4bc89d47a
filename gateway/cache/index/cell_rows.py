"""CellRows: vectors in cells around centres, for more of them than can all be compared.

    vector ──▶ nearest centres ──▶ rows of their cells, by four bits for two dimensions ──▶ the best, in half precision

This is an inverted file (Jégou, Douze & Schmid, 2011). Rows of a cell lie side by side and a quarter of a million of
them are compared in a millisecond, so that a search sees a good part of all and does not depend on a path to the
nearest one. Removed rows are passed over, but keep their room until whoever holds the cells moves the living ones to
new cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from time import sleep
from typing import Any, Final

import faiss as untyped_faiss
import numpy as np
from numpy.typing import NDArray

from gateway.cache.index.flat_rows import Match
from gateway.cache.index.half_rows import HalfRows
from gateway.cache.index.id_map import IdMap
from gateway.cache.index.id_rows import IdRows

faiss: Any = untyped_faiss
"""Its stubs know half of it."""

SEARCHED_CELLS: Final = 40
COMPARED: Final = 128
"""Rows compared in half precision: the best by four bits."""
_BROADEN: Final = 4
_OUTGROWN: Final = 4
"""By so many times the rows that they were made for."""

_FEW_ROWS: Final = 1000
_FIRST_BYTES: Final = 1024
_PLACES_AT_ONCE: Final = 1000
_IDS_AT_ONCE: Final = 500


class CellRows:
    """Ids and their vectors; rows are only ever added at the end.

    Not thread-safe, but for this: `settle`, `remove`, `last`, `sample` and questions about ids may be called while
    another thread is in `append`, `nearest` or `write`, which are for one thread at a time.
    """

    def __init__(self, index: Any, made_for: int) -> None:
        """What a training for so many rows ended with."""
        self._hold(index, made_for, HalfRows(index.d), IdRows(), np.zeros(_FIRST_BYTES, np.uint8))

    def _hold(self, index: Any, made_for: int, rows: HalfRows, exacts: IdRows, living: NDArray[np.uint8]) -> None:
        self._index = index
        self.made_for = made_for
        self._rows = rows
        self._exacts = exacts
        self._living = living
        """One bit for each row, from the lowest bit of a byte up."""
        self._places = IdMap[int]()
        self._untaken = 0
        """Of these rows those that live have not been taken yet."""
        for place, exact in enumerate(chain.from_iterable(exacts.pieces())):
            if self._lives(place):
                self._places[exact] = place
                self._untaken = place + 1
            if place % _IDS_AT_ONCE == 0:
                sleep(0)  # a million take most of a second, in which the event loop wants its turns

    def __len__(self) -> int:
        """How many live."""
        return len(self._places)

    def __contains__(self, exact: bytes) -> bool:
        return exact in self._places

    @property
    def exacts(self) -> IdRows:
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
    def num_held(self) -> int:
        """Rows whose vectors take memory, dead ones too."""
        return self._rows.num_kept

    @property
    def is_outgrown(self) -> bool:
        """Whether there are too few cells for what lives in them, made when much of it was not known yet."""
        return len(self) > max(_FEW_ROWS, _OUTGROWN * self.made_for)

    def ids(self) -> Iterable[bytes]:
        """All that live here; nothing may change meanwhile."""
        return iter(self._places)

    def vector(self, exact: bytes) -> NDArray[np.float32] | None:
        """The id's vector, as it came but for the precision."""
        place = self._places.get(exact)
        return None if place is None else self._rows.row(place)

    def append(self, exacts: list[bytes], rows: NDArray[np.float32]) -> int:
        """Add rows, of which none lives before `settle` says so; the place of the first. A tenth of a millisecond or so
        each."""
        faiss.omp_set_num_threads(1)
        begin = len(self._exacts)
        self._index.add(np.ascontiguousarray(rows))
        self._rows.append(rows)
        self._exacts.extend(exacts)
        return begin

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
        self._pass_dead()
        places: list[int] = []
        place = self._untaken
        while place > 0 and len(places) < num_rows:
            place -= 1
            if self._lives(place):
                places.append(place)
        rows = self._rows.take(np.array(places[::-1], np.int64))[::-1]
        return [self._exacts[place] for place in places], rows.astype(np.float32)

    def shed(self) -> None:
        """Give back the memory of vectors that `last` has no use for any more; no row may be added from now on."""
        self._pass_dead()
        self._rows.give_back(self._untaken)

    def drain(self) -> None:
        """Give everything back, a piece at a time; no row may live any more, nor be added."""
        self._rows.give_back(0)
        self._places.drain()
        self._exacts.drain()

    def sample(self, num_rows: int) -> NDArray[np.float32]:
        """About so many of the rows, from everywhere."""
        places = np.unique(np.random.default_rng(num_rows).integers(0, max(1, len(self._rows)), num_rows))
        places = places[places < len(self._rows)]
        sampled = np.empty((len(places), self._index.d), np.float32)
        for begin in range(0, len(places), _PLACES_AT_ONCE):
            end = begin + _PLACES_AT_ONCE
            sampled[begin:end] = self._rows.take(places[begin:end])
            sleep(0)
        return sampled

    def nearest(self, vector: NDArray[np.float32], count: int) -> list[Match]:
        """Up to `count` matches, best first; a near one is rarely missed."""
        faiss.omp_set_num_threads(1)
        num_rows, living = len(self._exacts), self._living
        compared = min(max(COMPARED, count), num_rows)
        if len(self) <= compared:
            places = np.flatnonzero(np.unpackbits(living, bitorder="little"))
        else:
            only = faiss.IDSelectorBitmap(len(living), faiss.swig_ptr(living)) if self.num_dead else None
            num_cells = SEARCHED_CELLS
            while True:
                num_searched = min(num_cells, self._index.nlist)  # FAISS goes astray with more than there are
                parameters = faiss.SearchParametersIVF(nprobe=num_searched, sel=only)
                _, (found,) = self._index.search(vector[None], compared, params=parameters)
                places = np.sort(found[found >= 0])
                if len(places) >= count or num_searched == self._index.nlist:
                    break
                num_cells *= _BROADEN
        matches = self._rows.nearest(vector, places, count)
        return [(cosine, self._exacts[place]) for cosine, place in matches if self._lives(place)]

    def write(self, write: Callable[[bytes], int]) -> None:
        """Hand everything but ids over in pieces. Nothing may be added meanwhile; searches and removals do no harm."""
        self._rows.write(write)
        faiss.write_index(self._index, faiss.PyCallbackIOWriter(write))

    @classmethod
    def read(
        cls,
        read: Callable[[int], bytes],
        dimensions: int,
        made_for: int,
        exacts: IdRows,
        living: NDArray[np.uint8],
    ) -> CellRows:
        """What `write` wrote, whose bytes are known to be whole. Raises ValueError for cells of another form."""
        half_rows = HalfRows.read(read, dimensions, len(exacts))
        try:
            index = faiss.read_index(faiss.PyCallbackIOReader(read))
        except RuntimeError as error:  # FAISS has no other
            raise ValueError(f"FAISS cannot read its part: {error}") from error
        if not isinstance(index, faiss.IndexIVFPQFastScan) or (index.d, index.ntotal) != (dimensions, len(exacts)):
            raise ValueError("the cells have not the rows or the dimensions that were told")
        rows = cls.__new__(cls)
        rows._hold(index, made_for, half_rows, exacts, np.concatenate([living, np.zeros(_FIRST_BYTES, np.uint8)]))
        return rows

    def _pass_dead(self) -> None:
        while self._untaken > 0 and not self._lives(self._untaken - 1):
            self._untaken -= 1

    def _lives(self, place: int) -> bool:
        living = self._living
        return 0 <= place < 8 * len(living) and bool(living[place >> 3] >> (place & 7) & 1)
