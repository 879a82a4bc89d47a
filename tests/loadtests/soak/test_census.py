"""The slope of memory and its interval, and what counts as more than before."""

from __future__ import annotations

import os
import random
import subprocess
import sys

from loadtests.harness.process_usage import tree_of, tree_rss_bytes
from loadtests.soak.census import Footing, slope_of

MEBIBYTE = 1024 * 1024


def samples(mib_per_h: float, noise_mib: float, seconds: int = 3600) -> list[tuple[float, float]]:
    rng = random.Random(1)
    return [(float(at), (200 + mib_per_h * at / 3600 + rng.gauss(0.0, noise_mib)) * MEBIBYTE) for at in range(seconds)]


def test_a_trend_lies_in_its_interval() -> None:
    for trend in (0.0, 3.0, -2.0):
        found = slope_of(samples(trend, noise_mib=1.0))
        assert found.low is not None
        assert found.high is not None
        assert found.low <= trend <= found.high
        assert found.low <= found.mib_per_h <= found.high
        assert found.high - found.low < 2.0


def test_noise_widens_the_interval_and_too_few_samples_state_nothing() -> None:
    narrow, wide = slope_of(samples(1.0, 0.1)), slope_of(samples(1.0, 5.0))
    widths = [(found.high or 0.0) - (found.low or 0.0) for found in (narrow, wide)]
    assert widths[1] > 5 * widths[0] > 0
    few = slope_of(samples(1.0, 0.1)[:5])
    assert (few.low, few.high) == (None, None)


def test_a_process_is_measured_with_all_below_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert {os.getpid(), child.pid} <= set(tree_of(os.getpid()))
        assert tree_rss_bytes(os.getpid()) > tree_rss_bytes(child.pid) > 0
    finally:
        child.communicate()


def test_only_what_was_added_counts() -> None:
    before = Footing(gateway_fds=20, engine_fds=10, tasks=12, threads=5)
    later = Footing(gateway_fds=22, engine_fds=9, tasks=14, threads=6)
    assert before.added(later) == {"gateway_fds": 0, "engine_fds": 0, "tasks": 2, "threads": 0}
    many = Footing(gateway_fds=90, engine_fds=10, tasks=12, threads=60)
    assert before.added(many)["threads"] > 0, "pools have a fixed size"
    assert before.added(many)["gateway_fds"] > 0, "pools of connections, too"
