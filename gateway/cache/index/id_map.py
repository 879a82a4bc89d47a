"""IdMap: a dict by id that never takes long to grow.

A dict of a million ids takes 30 ms to move to a larger table, during which nobody else has a turn; one in 256 parts
takes a fraction of a millisecond each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from time import sleep
from typing import Final, Generic, TypeVar

V = TypeVar("V")

_NUM_PARTS: Final = 256


class IdMap(Generic[V]):
    """Of a dict, what the index needs; in no particular order."""

    __slots__ = ("_num", "_parts")

    def __init__(self) -> None:
        self._parts: tuple[dict[bytes, V], ...] = tuple({} for _ in range(_NUM_PARTS))
        self._num = 0

    def __len__(self) -> int:
        return self._num

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(self._parts)

    def __contains__(self, exact: bytes) -> bool:
        return exact in self._parts[hash(exact) % _NUM_PARTS]

    def __setitem__(self, exact: bytes, value: V) -> None:
        part = self._parts[hash(exact) % _NUM_PARTS]
        before = len(part)
        part[exact] = value
        self._num += len(part) - before

    def get(self, exact: bytes) -> V | None:
        """None for an unknown id."""
        return self._parts[hash(exact) % _NUM_PARTS].get(exact)

    def pop(self, exact: bytes) -> V | None:
        """Forget the id; what it had, None for an unknown one."""
        part = self._parts[hash(exact) % _NUM_PARTS]
        if exact not in part:
            return None
        self._num -= 1
        return part.pop(exact)

    def drain(self) -> None:
        """Forget all, part by part: a million at once take 60 ms. Nobody may use it any more."""
        for part in self._parts:
            self._num -= len(part)
            part.clear()
            sleep(0)
