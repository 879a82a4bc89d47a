"""Prompt lookup: the continuation of the last earlier place where a sequence's newest tokens already stood.

Costs no model: extraction, passages and code repeat what is in the prompt. (A. Saxena, "Prompt Lookup Decoding", 2023.)
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

_TOKEN_BYTES = 8


class Lookup(NamedTuple):
    """What stood behind an earlier occurrence of a sequence's newest tokens."""

    num_matched: int
    """How many newest tokens stood there; the more, the likelier is the continuation."""
    token_ids: list[int]


class NgramProposer:
    """Drafts by lookup in the sequence's own tokens; keeps no state, so preemption and aborts need no care."""

    def __init__(self, *, longest: int = 5, shortest: int = 2) -> None:
        """Tries matches of `longest` tokens first, then shorter ones down to `shortest`."""
        if not 1 <= shortest <= longest:
            raise ValueError(f"n-gram sizes: expected 1 <= shortest <= longest, got {shortest} and {longest}")
        self._longest = longest
        self._shortest = shortest

    def propose(self, token_ids: array[int], max_drafts: int) -> list[int]:
        """Up to `max_drafts` tokens that may come next (int64 array in); empty when nothing repeats."""
        found = self.look_up(token_ids, max_drafts)
        return [] if found is None else found.token_ids

    def look_up(self, token_ids: array[int], max_drafts: int) -> Lookup | None:
        """The same with the length of the match; None when nothing repeats."""
        if max_drafts < 1 or len(token_ids) <= self._shortest:
            return None
        # The search runs in C over the array's bytes: a few microseconds for 4,096 tokens.
        haystack = token_ids.tobytes()
        for size in range(min(self._longest, len(token_ids) - 1), self._shortest - 1, -1):
            # The match may not be the suffix itself, so it must end before the last token does.
            at = _find_last(haystack, haystack[-size * _TOKEN_BYTES :], len(haystack) - _TOKEN_BYTES)
            if at is not None:
                begin = at + size
                return Lookup(size, token_ids[begin : begin + max_drafts].tolist())
        return None


def _find_last(haystack: bytes, needle: bytes, end: int) -> int | None:
    """Index, in tokens, of the last occurrence of `needle` that ends by byte `end` and starts at a token."""
    while True:
        at = haystack.rfind(needle, 0, end)
        if at < 0:
            return None
        if at % _TOKEN_BYTES == 0:
            return at // _TOKEN_BYTES
        end = at + len(needle) - 1
