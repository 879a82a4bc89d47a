"""Rows of like length, to be attended to in one call. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MAX_PADDING_RATIO = 1.5
"""Rows share a call while the longest is at most this many times the shortest (or both are short)."""
_SHORT_CONTEXT = 64
_MAX_GROUP_SLOTS = 4096
"""What one call reads at most, unless a single row is longer: little enough to stay in the processor's cache."""


def buckets_of(rows: Iterable[int], lengths: Sequence[int]) -> list[list[int]]:
    """Rows sorted by length and cut where padding would cost more than a call of its own, or a call is full."""
    buckets: list[list[int]] = []
    for row in sorted(rows, key=lambda row: lengths[row]):
        limit = max(_SHORT_CONTEXT, lengths[buckets[-1][0]] * _MAX_PADDING_RATIO) if buckets else 0
        if lengths[row] <= limit and lengths[row] * (len(buckets[-1]) + 1) <= _MAX_GROUP_SLOTS:
            buckets[-1].append(row)
        else:
            buckets.append([row])
    return [sorted(bucket) for bucket in buckets]
