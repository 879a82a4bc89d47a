"""Sequences of similar lengths share a call."""

from __future__ import annotations

import random

import pytest

from engine.attention.buckets import buckets_of


@pytest.mark.parametrize(
    ("lengths", "buckets"),
    [
        ([], []),
        ([7], [[0]]),
        ([1, 64, 30], [[0, 1, 2]]),
        ([100, 10, 150], [[1], [0, 2]]),
        ([100, 151], [[0], [1]]),
        ([500, 90, 600, 100], [[1, 3], [0, 2]]),
    ],
)
def test_short_rows_share_a_call_and_long_ones_only_with_little_padding(
    lengths: list[int], buckets: list[list[int]]
) -> None:
    assert buckets_of(range(len(lengths)), lengths) == buckets


def test_a_call_is_full_at_some_number_of_slots_unless_one_row_is_longer() -> None:
    assert [len(bucket) for bucket in buckets_of(range(9), [1000] * 9)] == [4, 4, 1]
    assert buckets_of([0, 1], [5000, 5000]) == [[0], [1]]


def test_every_row_is_in_one_bucket_and_others_in_none() -> None:
    rng = random.Random(1)
    lengths = [rng.randrange(1, 4000) for _ in range(50)]
    seqs = list(range(0, 50, 2))
    buckets = buckets_of(seqs, lengths)
    assert sorted(seq for bucket in buckets for seq in bucket) == seqs
    assert all(bucket == sorted(bucket) for bucket in buckets)
