"""Buckets of captured graphs: shapes are rounded up, so that a few graphs serve all steps."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from engine.attention.base import ForwardContext

_FIRST_CONTEXT = 1024
_CONTEXT_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Bucket:
    """Upper bounds of a captured step."""

    num_seqs: int
    num_tokens: int
    query_len: int
    """Tokens of one sequence."""
    context_len: int
    """Positions of one sequence: it decides how attention cuts the keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketLimits:
    """Limits above any of which a step is not captured."""

    max_num_seqs: int
    max_tokens: int
    max_query_len: int
    """1 for decode alone; one more than the drafts of a sequence where steps verify."""
    max_context_len: int


def find_bucket(context: ForwardContext, limits: BucketLimits) -> Bucket | None:
    """Return the smallest bucket that holds a step; None when the step runs uncaptured."""
    num_seqs, num_tokens = len(context.context_lens), context.query_starts[-1]
    query_len = max(end - start for start, end in itertools.pairwise(context.query_starts))
    context_len = max(context.context_lens)
    if num_seqs > limits.max_num_seqs or query_len > limits.max_query_len or context_len > limits.max_context_len:
        return None
    num_seqs = min(_power_of_two(num_seqs), limits.max_num_seqs)
    # One token, or one more than a power of two: that many drafts.
    longest = 1 if query_len == 1 else min(1 + _power_of_two(query_len - 1), limits.max_query_len)
    tokens = min(max(num_seqs, _power_of_two(num_tokens)), num_seqs * longest)
    if tokens > limits.max_tokens:
        return None
    return Bucket(num_seqs, tokens, longest, min(_context_bound(context_len), limits.max_context_len))


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _context_bound(context_len: int) -> int:
    bound = _FIRST_CONTEXT
    while bound < context_len:
        bound *= _CONTEXT_GROWTH
    return bound
