"""IdRows: ids by place, which the garbage collector passes over.

A list of a million ids takes a full collection 90 ms, as it looks at each of them while nobody else has a turn; into
arrays of objects it does not look.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import sleep
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_BLOCK_IDS: Final = 1000


class IdRows:
    """Of a list, what the index needs; ids are only ever added at the end."""

    __slots__ = ("_blocks", "_num_ids")

    def __init__(self) -> None:
        self._blocks: list[NDArray[np.object_]] = []
        self._num_ids = 0

    def __len__(self) -> int:
        return self._num_ids

    def __getitem__(self, place: int) -> bytes:
        exact: Any = self._blocks[place // _BLOCK_IDS][place % _BLOCK_IDS]
        assert isinstance(exact, bytes)
        return exact

    def extend(self, exacts: list[bytes]) -> None:
        """Add ids."""
        for exact in exacts:
            place = self._num_ids % _BLOCK_IDS
            if place == 0:
                self._blocks.append(np.empty(_BLOCK_IDS, np.object_))
            self._blocks[-1][place] = exact
            self._num_ids += 1

    def drain(self) -> None:
        """Forget all, a thousand at a time."""
        self._num_ids = 0
        while self._blocks:
            self._blocks.pop()
            sleep(0)

    def pieces(self) -> Iterator[list[bytes]]:
        """All of them, a thousand at a time."""
        for begin in range(0, self._num_ids, _BLOCK_IDS):
            yield self._blocks[begin // _BLOCK_IDS][: self._num_ids - begin].tolist()
