"""The bench of memory: what it counts, and that it runs without a peer."""

from __future__ import annotations

import mmap
import os

import pytest

from loadtests.harness.process_usage import anonymous_bytes
from tests.loadtests.bench import bench

SMALL = "engine/bundled/models/penstock-small"


def test_memory_that_was_written_is_anonymous_and_memory_that_was_only_reserved_is_not() -> None:
    before = anonymous_bytes(os.getpid())
    with mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        reserved = anonymous_bytes(os.getpid())
        for start in range(0, 32 << 20, mmap.PAGESIZE):
            memory[start] = 1
        written = anonymous_bytes(os.getpid())
    assert reserved - before < 4 << 20
    assert 31 << 20 < written - reserved < 40 << 20


@pytest.mark.e2e
def test_a_filled_context_adds_to_the_memory_of_the_core() -> None:
    record = bench("peer_memory", "--model", SMALL, "--prompt", "400", "--threads", "1")
    assert record["ready_mb"] > record["filled_anonymous_mb"] / 2 > 50
    assert record["filled_mb"] > record["filled_anonymous_mb"]
    assert "llama_cpp_mb" not in record
