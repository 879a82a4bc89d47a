"""Cells for vectors: where their centres are, and how vectors in them are told with four bits for two dimensions.

k-means over a sample finds the centres, then a product quantiser (Jégou, Douze & Schmid, 2011) learns what vectors
differ by from theirs. That takes seconds of one core for 1024 cells, so it goes on pass by pass.
"""

from __future__ import annotations

from typing import Any, Final

import faiss as untyped_faiss
import numpy as np
from numpy.typing import NDArray

faiss: Any = untyped_faiss
"""Its stubs know half of it."""

_CELLS: Final = ((2_000_000, 4096), (150_000, 1024), (35_000, 256), (4_000, 64), (0, 1))
"""From so many rows on so many cells, which are made anew for four times as many rows."""
_SAMPLED_PER_CELL: Final = 32
_MIN_SAMPLE: Final = 4096
_NUM_PASSES: Final = 8
_CODE_BITS: Final = 4
"""What the quick comparison is made for (André, Kermarrec & Le Scouarnec, 2015)."""
_CODE_DIMENSIONS: Final = 2

Matrix = NDArray[np.float32]


def num_cells_for(num_rows: int) -> int:
    """Few enough to compare with all their centres, and enough for a few of them to be a small part of the rows."""
    return next(num_cells for least, num_cells in _CELLS if num_rows >= least)


def sample_size_for(num_rows: int) -> int:
    """How many rows to learn from."""
    return min(num_rows, max(_MIN_SAMPLE, _SAMPLED_PER_CELL * num_cells_for(num_rows)))


class CellTraining:
    """Learns from a sample of vectors, of any number, what cells a set of so many rows is to have."""

    def __init__(self, sample: Matrix, num_rows: int) -> None:
        self.num_rows = num_rows
        rng, dimensions = np.random.default_rng(num_rows), sample.shape[1]
        if len(sample) < _MIN_SAMPLE:
            # Few rows say little about those to come, and quantisers want more than none.
            filler = rng.standard_normal((_MIN_SAMPLE - len(sample), dimensions), np.float32) / dimensions**0.5
            sample = np.concatenate([sample, filler])
        self._sample = np.ascontiguousarray(sample)
        self._centres = self._sample[rng.choice(len(sample), num_cells_for(num_rows), replace=False)]
        self._num_passes = _NUM_PASSES

    def step(self) -> Any:
        """One pass; the empty FAISS index once all are done, None before."""
        faiss.omp_set_num_threads(1)
        num_cells, dimensions = self._centres.shape
        centres = faiss.IndexFlatIP(dimensions)
        if self._num_passes > 0 and num_cells > 1:
            self._num_passes -= 1
            passing = faiss.Clustering(dimensions, num_cells)
            passing.niter, passing.spherical, passing.min_points_per_centroid = 1, True, 1
            passing.max_points_per_centroid = len(self._sample)
            faiss.copy_array_to_vector(self._centres.ravel(), passing.centroids)
            passing.train(self._sample, centres)
            self._centres = faiss.vector_to_array(passing.centroids).reshape(num_cells, dimensions)
            return None
        centres.add(self._centres)
        num_codes = dimensions // _CODE_DIMENSIONS if dimensions % _CODE_DIMENSIONS == 0 else dimensions
        index = faiss.IndexIVFPQFastScan(
            centres, dimensions, num_cells, num_codes, _CODE_BITS, faiss.METRIC_INNER_PRODUCT
        )
        index.by_residual = True
        index.pq.cp.niter = _NUM_PASSES
        index.train(self._sample)
        return index
