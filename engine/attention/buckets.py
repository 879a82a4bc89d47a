"""Grouping of sequences with similar lengths, so that one attention call serves a group. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MAX_PADDING_RATIO = 1.5
"""Largest ratio of the longest to the shortest length in a group; groups of short lengths are exempt."""
_SHORT_CONTEXT = 64
_MAX_GROUP_SLOTS = 4096
"""Maximum number of slots that a call reads, unless one sequence is longer; so many stay in the processor's cache."""


def buckets_of(sequences: Iterable[int], lengths: Sequence[int]) -> list[list[int]]:
    """Sort sequences by length and cut them where padding costs more than another call, or where a call is full."""
    buckets: list[list[int]] = []
    for seq in sorted(sequences, key=lambda seq: lengths[seq]):
        limit = max(_SHORT_CONTEXT, lengths[buckets[-1][0]] * _MAX_PADDING_RATIO) if buckets else 0
        if lengths[seq] <= limit and lengths[seq] * (len(buckets[-1]) + 1) <= _MAX_GROUP_SLOTS:
            buckets[-1].append(seq)
        else:
            buckets.append([seq])
    return [sorted(bucket) for bucket in buckets]
