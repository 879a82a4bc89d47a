"""Processor time, memory, open files and threads of one process or of a whole tree, by `/proc`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used, user and system, all threads. Raises OSError."""
    # Fields are counted after the name, which may hold spaces and parentheses itself: proc(5), utime 14, stime 15.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def rss_bytes(pid: int) -> int:
    """Return a process's memory resident now. Raises OSError."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES


def anonymous_bytes(pid: int) -> int:
    """Return a process's resident memory that no file backs. Raises OSError."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) * 1024


def num_fds(pid: int) -> int:
    """Return a process's open file descriptors. Raises OSError."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def tree_of(pid: int) -> list[int]:
    """Return a process and all that descend from it; those that end meanwhile are left out."""
    found = [pid]
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                found += tree_of(int(child))
    return found


def tree_cpu_s(pid: int) -> float:
    """Return the processor time of the whole tree; what descendants used that have ended is left out."""
    return _sum_over_tree(pid, cpu_s)


def tree_rss_bytes(pid: int) -> int:
    """Return the memory resident now of the whole tree; pages that processes share count for each."""
    return int(_sum_over_tree(pid, rss_bytes))


def tree_fds(pid: int) -> int:
    """Return the open files of the whole tree."""
    return int(_sum_over_tree(pid, num_fds))


def tree_threads(pid: int) -> int:
    """Return the threads of the whole tree."""
    return int(_sum_over_tree(pid, lambda each: len(os.listdir(f"/proc/{each}/task"))))


def _sum_over_tree(pid: int, read: Callable[[int], float]) -> float:
    total = 0.0
    for each in tree_of(pid):
        with contextlib.suppress(OSError):  # it ended meanwhile
            total += read(each)
    return total
