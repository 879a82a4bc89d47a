"""Number of cores and amount of memory available to this process, within its control group's limits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Reader of the kernel's limit files below `root` (`/`; another folder in tests)."""

    root: Path = Path("/")

    def num_cores(self) -> int:
        """Return the number of cores in the affinity mask, or fewer when the control group grants less time."""
        # macOS has no affinity masks.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        for folder in self._groups("cpu"):
            quota = _read_words(folder / "cpu.max") or (
                _read_words(folder / "cpu.cfs_quota_us") + _read_words(folder / "cpu.cfs_period_us")
            )
            if len(quota) == 2 and quota[0].isdigit():
                cores = min(cores, -(-int(quota[0]) // int(quota[1])))
        return max(1, cores)

    def free_memory_bytes(self) -> int:
        """Return the bytes that can still be allocated without swapping or hitting a control group's limit."""
        free = _read_table(self.root / "proc/meminfo").get("MemAvailable", 0) * 1024
        if not free:
            # Without /proc only the machine's size is known; half of it is an estimate that leaves room for others.
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        for folder in self._groups("memory"):
            limit = _read_number(folder / "memory.max") or _read_number(folder / "memory.limit_in_bytes")
            if limit is None or limit >= _UNLIMITED:
                continue
            used = _read_number(folder / "memory.current") or _read_number(folder / "memory.usage_in_bytes") or 0
            reclaimable = _read_table(folder / "memory.stat").get("inactive_file", 0)
            free = min(free, limit - used + reclaimable)
        return max(0, free)

    def _groups(self, controller: str) -> list[Path]:
        """Return the folders of this process's control group and its ancestors, version 2 or 1."""
        folders: list[Path] = []
        for line in _read_text(self.root / "proc/self/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            base = self.root / "sys/fs/cgroup"
            top = base / controller if controllers else base
            # Inside a container the path may be the host's; the mount's top is then this group's own folder.
            relative = Path(path.lstrip("/"))
            folders += [top / relative, *(top / parent for parent in relative.parents)]
        return folders


def _read_text(path: Path) -> str:
    """Return the file's text; empty where the kernel has no such file."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _read_words(path: Path) -> list[str]:
    return _read_text(path).split()


def _read_number(path: Path) -> int | None:
    text = _read_text(path).strip()
    return int(text) if text.isdigit() else None


def _read_table(path: Path) -> dict[str, int]:
    """Return the values of lines `name: number` or `name number`; other lines are left out."""
    table: dict[str, int] = {}
    for line in _read_text(path).splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdigit():
            table[words[0]] = int(words[1])
    return table
