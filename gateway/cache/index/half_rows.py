"""HalfRows: vectors in half precision, 768 bytes for 384 dimensions, which moves a cosine by about 0.0001."""

from __future__ import annotations

from collections.abc import Callable
from mmap import MADV_DONTNEED, MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from time import sleep
from typing import Any, Final

import faiss as untyped_faiss
import numpy as np
from numpy.typing import NDArray

faiss: Any = untyped_faiss
"""Its stubs know half of it."""

_BLOCK_ROWS: Final = 1 << 16
"""Of a matrix, above which another one is begun: one that grew would be copied. Pages without rows take no memory."""
_ROWS_AT_ONCE: Final = 512
_GIVEN_AT_ONCE: Final = 2048
"""Rows whose memory is given back in one call: a fraction of a millisecond."""

Places = NDArray[np.int64]


class HalfRows:
    """Rows are only ever added at the end. Those that are there may be read while others are added."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._blocks: list[NDArray[np.float16]] = []
        self._memory: list[mmap] = []
        """What the blocks lie in, whose pages can be given back before all of a block is."""
        self._num_rows = 0
        self._num_kept = 0
        self._compared = faiss.IndexScalarQuantizer(
            dimensions, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        self._compared.train(np.zeros((1, dimensions), np.float32))

    def __len__(self) -> int:
        return self._num_rows

    @property
    def num_kept(self) -> int:
        """Rows before the first whose memory was given back."""
        return self._num_kept

    def append(self, rows: NDArray[np.float32] | NDArray[np.float16]) -> None:
        """Add rows."""
        while len(rows):
            begin = self._num_rows % _BLOCK_ROWS
            if begin == 0:
                memory = mmap(-1, 2 * self._dimensions * _BLOCK_ROWS, flags=MAP_PRIVATE | MAP_ANONYMOUS)
                self._memory.append(memory)
                self._blocks.append(np.frombuffer(memory, np.float16).reshape(_BLOCK_ROWS, self._dimensions))
            some = rows[: _BLOCK_ROWS - begin]
            self._blocks[-1][begin : begin + len(some)] = some
            self._num_rows += len(some)
            rows = rows[len(some) :]
        self._num_kept = self._num_rows

    def give_back(self, begin: int) -> None:
        """Let the memory of the rows from place `begin` on go; they are zeros, and none may be added any more."""
        while (end := self._num_kept) > begin:
            number = (end - 1) // _BLOCK_ROWS
            first = max(begin, number * _BLOCK_ROWS, end - _GIVEN_AT_ONCE)
            start, stop = (self._page_end(place - number * _BLOCK_ROWS) for place in (first, end))
            if start < stop:
                self._memory[number].madvise(MADV_DONTNEED, start, stop - start)
            self._num_kept = first
            if first > begin:
                sleep(0)

    def take(self, places: Places) -> NDArray[np.float16]:
        """The rows in these places, which ascend: a copy."""
        found = np.empty((len(places), self._dimensions), np.float16)
        first, last = (int(places[0]), int(places[-1])) if len(places) else (0, -1)
        for number in range(first // _BLOCK_ROWS, last // _BLOCK_ROWS + 1):
            begin, end = np.searchsorted(places, (number * _BLOCK_ROWS, (number + 1) * _BLOCK_ROWS)).tolist()
            self._blocks[number].take(places[begin:end] - number * _BLOCK_ROWS, 0, out=found[begin:end], mode="clip")
        return found

    def row(self, place: int) -> NDArray[np.float32]:
        """A copy of one."""
        row: NDArray[np.float32] = self._blocks[place // _BLOCK_ROWS][place % _BLOCK_ROWS].astype(np.float32)
        return row

    def nearest(self, vector: NDArray[np.float32], places: Places, count: int) -> list[tuple[float, int]]:
        """Cosine and place of up to `count` of the rows in these places, which ascend; best first. For one thread at a
        time."""
        if len(places) == 0:
            return []
        self._compared.reset()
        self._compared.add_sa_codes(self.take(places).view(np.uint8))
        cosines, numbers = self._compared.search(vector[None], min(count, len(places)))
        return list(zip(cosines[0].tolist(), places[numbers[0]].tolist(), strict=True))

    def write(self, write: Callable[[bytes], int]) -> None:
        """Hand the rows over in pieces. Nothing may be added meanwhile."""
        for begin in range(0, self._num_rows, _ROWS_AT_ONCE):
            block, end = self._blocks[begin // _BLOCK_ROWS], min(self._num_rows, begin + _ROWS_AT_ONCE)
            write(block[begin % _BLOCK_ROWS :][: end - begin].tobytes())

    @classmethod
    def read(cls, read: Callable[[int], bytes], dimensions: int, num_rows: int) -> HalfRows:
        """What `write` wrote."""
        rows = cls(dimensions)
        while (missing := min(_ROWS_AT_ONCE, num_rows - len(rows))) > 0:
            rows.append(np.frombuffer(read(2 * dimensions * missing), np.float16).reshape(-1, dimensions))
            sleep(0)  # the event loop wants its turns
        return rows

    def _page_end(self, num_rows: int) -> int:
        """Bytes of so many rows of a block, the rest of the last page included."""
        num_bytes = 2 * self._dimensions * num_rows
        return num_bytes + -num_bytes % PAGESIZE
