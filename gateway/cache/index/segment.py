"""IndexSegment: rows of one partition in one FAISS index, compared in full while few, by cells and codes when many.

    vector ──▶ nearest cells ──▶ their rows, by four bits for two dimensions ──▶ the best, in half precision

The last two stages are FAISS's `IndexIVFPQFastScan` (Jégou, Douze & Schmid, 2011; André, Kermarrec & Le Scouarnec,
2015) and `IndexRefine`. A removal clears a bit; removed rows leave when segments are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import faiss as untyped_faiss
import numpy as np
from numpy.typing import NDArray

faiss: Any = untyped_faiss
"""FAISS, whose type stubs cover half of it."""

SEARCHED_CELLS: Final = 40
REFINED_ROWS: Final = 128
"""Rows that a search compares in half precision."""
_ROWS_PER_CELL: Final = 256
_SAMPLED_PER_CELL: Final = 32
_MIN_SAMPLE: Final = 4096
_NUM_PASSES: Final = 8
_CODE_BITS: Final = 4
MIN_FLAT_ROWS: Final = 2**_CODE_BITS
"""Fewest rows that FAISS learns codes from."""
_ROWS_AT_ONCE: Final = 4096
_WORN_RATIO: Final = 0.25
_FEW_DEAD: Final = 4
_END_MARK: Final = b"\1"
"""End of each id: NumPy strips zero bytes from the end of byte strings, and digests may end with some."""

Matrix = NDArray[np.float32]
Ids = NDArray[np.bytes_]
"""One for each row, ascending, with an end mark."""
Flags = NDArray[np.bool_]
Match = tuple[float, bytes]
"""Cosine and id; the larger one is nearer."""


class IndexSegment:
    """Rows that only lose members. Any thread may search while another one removes."""

    __slots__ = ("_living", "ids", "index", "is_flat", "num_living")

    def __init__(self, index: Any, ids: Ids, living: Flags) -> None:
        """Wrap a FAISS index; `living` flags the rows that still count."""
        self.index = index
        self.is_flat = isinstance(index, faiss.IndexFlat)
        self.ids = ids
        self.num_living = int(living.sum())
        self._living = np.packbits(living, bitorder="little")

    @classmethod
    def flat(cls, vectors: Mapping[bytes, bytes]) -> IndexSegment:
        """Return a segment of these ids, at least one, and the bytes of their vectors."""
        exacts = sorted(vectors)
        matrix = matrix_of([vectors[exact] for exact in exacts])
        index = faiss.IndexFlatIP(matrix.shape[1])
        index.add(matrix)
        return cls(index, np.array([exact + _END_MARK for exact in exacts]), np.ones(len(exacts), np.bool_))

    def __len__(self) -> int:
        """Return the number of rows, removed ones included."""
        return len(self.ids)

    @property
    def is_worn(self) -> bool:
        """Return whether so many rows are removed that the segment should be written again."""
        return len(self) - self.num_living > max(_FEW_DEAD, _WORN_RATIO * len(self))

    def living(self) -> Flags:
        """Return a copy of the flags of the rows that still count."""
        return np.unpackbits(self._living, count=len(self), bitorder="little").view(np.bool_)

    def __contains__(self, exact: bytes) -> bool:
        return self._row(exact) is not None

    def remove(self, exact: bytes) -> bool:
        """Remove the id; return whether it was here."""
        row = self._row(exact)
        if row is not None:
            self._living[row >> 3] ^= 1 << (row & 7)
            self.num_living -= 1
        return row is not None

    def exacts(self) -> list[bytes]:
        """Return the ids, those of removed rows included."""
        return [self._exact(row) for row in range(len(self))]

    def vectors(self, rows: NDArray[np.int64]) -> Matrix:
        """Return the vectors of some rows, `[len(rows), dimensions]`, in that order."""
        stored = self.index if self.is_flat else faiss.downcast_index(self.index.refine_index)
        found: Matrix = stored.reconstruct_batch(rows)
        return found

    def nearest(self, vector: Matrix, count: int) -> list[Match]:
        """Return up to `count` living rows; the nearest one is rarely missed, and never in a flat segment."""
        faiss.omp_set_num_threads(1)  # holds for the calling thread: two threads for one vector only cost
        count, living = min(count, self.num_living), self._living
        only = faiss.IDSelectorBitmap(len(living), faiss.swig_ptr(living)) if self.num_living < len(self) else None
        if not count or self.is_flat:
            return self._matches(vector, count, faiss.SearchParameters(sel=only)) if count else []
        num_cells = faiss.downcast_index(self.index.base_index).nlist
        found: list[Match] = []
        for searched in (SEARCHED_CELLS, num_cells):  # all of them where living rows are far apart
            cells = faiss.SearchParametersIVF(nprobe=min(searched, num_cells), sel=only)
            refined = {"k_factor": max(REFINED_ROWS / count, 1.0), "base_index_params": cells}
            found = self._matches(vector, count, faiss.IndexRefineSearchParameters(**refined))
            if len(found) == count:
                break
        return found

    def _matches(self, vector: Matrix, count: int, parameters: Any) -> list[Match]:
        cosines, rows = self.index.search(vector[None], count, params=parameters)
        pairs = zip(cosines[0].tolist(), rows[0].tolist(), strict=True)
        return [(cosine, self._exact(row)) for cosine, row in pairs if row >= 0]

    def _exact(self, row: int) -> bytes:
        return bytes(self.ids[row])[: -len(_END_MARK)]

    def _row(self, exact: bytes) -> int | None:
        marked = exact + _END_MARK
        row = int(self.ids.searchsorted(marked))
        is_here = row < len(self.ids) and self.ids[row] == marked and self._living[row >> 3] >> (row & 7) & 1
        return row if is_here else None


def matrix_of(vectors: Sequence[bytes]) -> Matrix:
    """Return a matrix whose rows are these vectors, at least one; many times as fast as to stack arrays."""
    return np.frombuffer(b"".join(vectors), np.float32).reshape(len(vectors), -1)


class MergeStopped(Exception):
    """A merge was given up."""


def merge_segments(
    sources: Sequence[IndexSegment],
    living: Sequence[Flags],
    flat_rows: int,
    is_stopped: Callable[[], bool] = lambda: False,
) -> tuple[Any, Ids, NDArray[np.int64]]:
    """Write the living rows of some segments into one FAISS index; takes tens of microseconds a row.

    Returns:
        The index, its ids, and where each of its rows stands in the concatenated living rows.

    Raises:
        MergeStopped: `is_stopped` returned True.
    """
    faiss.omp_set_num_threads(1)
    rows, dimensions = [np.flatnonzero(each) for each in living], sources[0].index.d
    ids = np.concatenate([source.ids[each] for source, each in zip(sources, rows, strict=True)])
    order = ids.argsort()
    owners, places = np.repeat(np.arange(len(sources)), [len(each) for each in rows]), np.concatenate(rows)

    def vectors(chosen: NDArray[np.int64]) -> Matrix:
        found = np.empty((len(chosen), dimensions), np.float32)
        for number in np.unique(owners[chosen]):
            is_owned = owners[chosen] == number
            found[is_owned] = sources[number].vectors(places[chosen][is_owned])
        return found

    index = faiss.IndexFlatIP(dimensions)
    if len(ids) > flat_rows:
        index = _with_cells(index, len(ids), vectors)
    for begin in range(0, len(ids), _ROWS_AT_ONCE):
        if is_stopped():
            raise MergeStopped
        index.add(vectors(order[begin : begin + _ROWS_AT_ONCE]))
    return index, ids[order], order


def _with_cells(centres: Any, num_rows: int, vectors: Callable[[NDArray[np.int64]], Matrix]) -> Any:
    """Return an empty index for so many rows, whose cells and codes are learnt from a sample of them."""
    num_cells, dimensions, inner = max(1, num_rows // _ROWS_PER_CELL), centres.d, faiss.METRIC_INNER_PRODUCT
    num_sampled = min(num_rows, max(_MIN_SAMPLE, _SAMPLED_PER_CELL * num_cells))
    sample = vectors(np.random.default_rng(num_rows).choice(num_rows, num_sampled, replace=False))
    cells = faiss.IndexIVFPQFastScan(centres, dimensions, num_cells, dimensions // 2, _CODE_BITS, inner)
    cells.by_residual = cells.cp.spherical = True
    for clustering in (cells.cp, cells.pq.cp):
        clustering.niter, clustering.min_points_per_centroid = _NUM_PASSES, 1
    cells.cp.max_points_per_centroid = num_sampled
    cells.train(sample)
    half = faiss.IndexScalarQuantizer(dimensions, faiss.ScalarQuantizer.QT_fp16, inner)
    half.train(sample[:1])
    return faiss.IndexRefine(cells, half)
