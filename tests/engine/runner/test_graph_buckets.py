"""Steps are rounded up to buckets that hold them, and large ones to none."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.attention.base import ForwardContext
from engine.runner.graph_buckets import Bucket, BucketLimits, find_bucket

LIMITS = BucketLimits(max_num_seqs=24, max_tokens=128, max_query_len=9, max_context_len=6000)


def context(*rows: tuple[int, int]) -> ForwardContext:
    """Sequences of (query length, context length)."""
    nothing = torch.empty(0)
    starts = [0, *itertools.accumulate(length for length, _ in rows)]
    return ForwardContext(nothing, nothing, starts, [end for _, end in rows], nothing, 16)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(1, 10)], Bucket(1, 1, 1, 1024)),
        ([(1, 10), (1, 1025), (1, 7)], Bucket(4, 4, 1, 4096)),
        ([(1, 5000)] * 17, Bucket(24, 24, 1, 6000)),
        ([(5, 90), (1, 10)], Bucket(2, 8, 5, 1024)),
        ([(7, 90)], Bucket(1, 8, 9, 1024)),
        ([(4, 90)], Bucket(1, 4, 5, 1024)),
        ([(1, 9)] * 25, None),
        ([(10, 90)], None),
        ([(9, 90)] * 15, None),
        ([(1, 6001)], None),
    ],
)
def test_shapes_are_rounded_up(rows: list[tuple[int, int]], expected: Bucket | None) -> None:
    assert find_bucket(context(*rows), LIMITS) == expected


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(9, 6000)), min_size=1, max_size=24))
def test_a_bucket_holds_its_step(rows: list[tuple[int, int]]) -> None:
    bucket = find_bucket(context(*rows), LIMITS)
    if bucket is None:
        assert sum(length for length, _ in rows) > 64
        return
    assert len(rows) <= bucket.num_seqs <= LIMITS.max_num_seqs
    assert max(length for length, _ in rows) <= bucket.query_len
    assert sum(length for length, _ in rows) <= bucket.num_tokens <= bucket.num_seqs * bucket.query_len
    assert max(end for _, end in rows) <= bucket.context_len
