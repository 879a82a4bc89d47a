"""Prompt lookup: where a sequence's newest tokens stood before, found in constant time.

Costs no model: extraction, passages and code repeat what is in the prompt. (A. Saxena, "Prompt Lookup Decoding", 2023.)
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise

_LONG = 4
LONGEST = 16
"""Most tokens compared to tell how long a match is."""

_Run = int | tuple[int, ...]


class TextIndex:
    """The last place behind every run of one, two and four tokens; grows with the text, a few operations a token."""

    __slots__ = ("_num_indexed", "_places")

    def __init__(self) -> None:
        self._places: dict[_Run, int] = {}
        self._num_indexed = 0

    def extend(self, token_ids: array[int]) -> None:
        """Take in what the text gained since the last call; a text never shrinks."""
        if not self._num_indexed:
            self._fill(token_ids.tolist())
            return
        begin, end = self._num_indexed, len(token_ids)
        if begin == end:
            return
        places = self._places
        start = max(0, begin - _LONG)
        new = token_ids[start:].tolist()
        # Only what something stands behind is entered, so that the end of the text never finds itself.
        for place in range(max(1, begin - start), end - start):
            places[new[place - 1]] = start + place
            if place > 1:
                places[new[place - 2], new[place - 1]] = start + place
            if place >= _LONG:
                places[new[place - 4], new[place - 3], new[place - 2], new[place - 1]] = start + place
        self._num_indexed = end

    def _fill(self, ids: list[int]) -> None:
        """The first, long part of the text, without Python for each token."""
        self._num_indexed = end = len(ids)
        self._places.update(zip(ids, range(1, end), strict=False))
        self._places.update(zip(pairwise(ids), range(2, end), strict=False))
        runs = zip(ids, ids[1:], ids[2:], ids[3:], strict=False)
        self._places.update(zip(runs, range(_LONG, end), strict=False))

    def find(self, newest: Sequence[int]) -> int | None:
        """Where the continuation of the longest run known among the newest tokens stands; None: nowhere."""
        find, last = self._places.get, newest[-1]
        place = find(last)
        if place is None or len(newest) < 2:
            return place
        longer = find((newest[-2], last))
        if longer is None or len(newest) < _LONG:
            return place if longer is None else longer
        longest = find((newest[-4], newest[-3], newest[-2], last))
        return longer if longest is None else longest


def match_length(token_ids: array[int], place: int, newest: Sequence[int]) -> int:
    """How many newest tokens also stand before the place, up to `LONGEST`."""
    limit = min(place, len(newest), LONGEST)
    length = 0
    while length < limit and token_ids[place - 1 - length] == newest[-1 - length]:
        length += 1
    return length
