"""Main memory as the pool's size reads it."""

from __future__ import annotations

from pathlib import Path

from engine.runner.memory_probe import HostMemory
from tests.engine.runner.test_host_limits import machine

GIB = 1 << 30


def test_processes_that_share_a_machine_share_its_free_memory(tmp_path: Path) -> None:
    limits = machine(tmp_path, {})
    assert HostMemory(limits).free_bytes() == 8 * GIB
    assert HostMemory(limits, num_sharers=4).free_bytes() == 2 * GIB


def test_a_peak_counts_above_the_present_use_and_not_per_sharer(tmp_path: Path) -> None:
    limits = machine(tmp_path, {"proc/self/status": "VmHWM:\t    300 kB\nVmRSS:\t    200 kB\n"})
    memory = HostMemory(limits, num_sharers=4)
    memory.begin()
    assert memory.transient_bytes() == 100 * 1024
