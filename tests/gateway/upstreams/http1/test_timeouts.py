from __future__ import annotations

from math import inf

import pytest

from gateway.upstreams.http1.errors import FirstByteTimeout, InterChunkTimeout, TotalTimeout
from gateway.upstreams.http1.request import Deadlines, ExchangeTimeouts


def deadlines(timeouts: ExchangeTimeouts) -> Deadlines:
    return Deadlines(timeouts, started_at=0.0, written_at=1.0)


def test_nothing_is_ever_late_without_limits() -> None:
    free = deadlines(ExchangeTimeouts())
    free.progress(5.0)
    assert free.next_at == inf
    assert free.expired(1e9) is None


def test_the_first_byte_counts_from_the_moment_of_writing() -> None:
    first = deadlines(ExchangeTimeouts(first_byte_s=2.0))
    assert first.next_at == 3.0
    assert first.expired(2.9) is None
    assert first.expired(3.0) is FirstByteTimeout


def test_each_piece_moves_the_gap() -> None:
    gaps = deadlines(ExchangeTimeouts(first_byte_s=8.0, inter_chunk_s=2.0))
    gaps.progress(4.0)
    assert gaps.next_at == 6.0
    gaps.progress(5.5)
    assert gaps.expired(7.0) is None
    assert gaps.expired(7.5) is InterChunkTimeout


def test_the_whole_counts_from_the_start_and_wins() -> None:
    both = deadlines(ExchangeTimeouts(first_byte_s=20.0, total_s=10.0))
    assert both.next_at == 10.0
    assert both.expired(10.0) is TotalTimeout


def test_our_own_pause_is_not_the_upstreams_silence() -> None:
    paused = deadlines(ExchangeTimeouts(inter_chunk_s=2.0, total_s=100.0))
    paused.progress(5.0)
    paused.suspend()
    assert paused.next_at == 100.0
    assert paused.expired(50.0) is None
    paused.restart(60.0)
    assert paused.next_at == 62.0
    assert paused.expired(100.0) is TotalTimeout


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_refuses_a_limit_that_is_no_time(value: float) -> None:
    with pytest.raises(ValueError, match="total_s"):
        ExchangeTimeouts(total_s=value)
