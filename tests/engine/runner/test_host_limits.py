"""Memory and cores from the kernel's files, control groups of both versions included."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.runner.host_limits import HostLimits

_GIB = 1 << 30


def machine(root: Path, files: dict[str, str]) -> HostLimits:
    """A file tree with 8 GiB available, and these files besides."""
    for name, text in ({"proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"} | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return HostLimits(root)


def test_without_control_groups_all_that_is_available_counts(tmp_path: Path) -> None:
    assert machine(tmp_path, {}).free_memory_bytes() == 8 * _GIB


def test_a_version_2_limit_counts_with_its_reclaimable_cache(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pod/engine\n",
        "sys/fs/cgroup/pod/memory.max": f"{4 * _GIB}\n",
        "sys/fs/cgroup/pod/memory.current": f"{2 * _GIB}\n",
        "sys/fs/cgroup/pod/memory.stat": f"anon 5\ninactive_file {_GIB}\n",
        "sys/fs/cgroup/pod/engine/memory.max": "max\n",
    }
    assert machine(tmp_path, files).free_memory_bytes() == 3 * _GIB


def test_a_version_1_limit_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/docker/abc\n1:cpu,cpuacct:/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * _GIB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{_GIB}\n",
    }
    assert machine(tmp_path, files).free_memory_bytes() == _GIB


def test_a_version_1_group_without_limit_is_ignored(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "5\n",
    }
    assert machine(tmp_path, files).free_memory_bytes() == 8 * _GIB


def test_use_above_the_limit_leaves_nothing_rather_than_less(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": "100\n",
        "sys/fs/cgroup/memory.current": "200\n",
    }
    assert machine(tmp_path, files).free_memory_bytes() == 0


@pytest.mark.parametrize(("quota", "expected"), [("50000 100000", 1), ("max 100000", 64), ("350000 100000", 4)])
def test_cores_are_those_that_the_control_group_grants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    files = {"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/cpu.max": quota}
    assert machine(tmp_path, files).num_cores() == expected


def test_this_machine_has_memory_and_cores() -> None:
    limits = HostLimits()
    assert limits.free_memory_bytes() > 0
    assert limits.num_cores() >= 1
