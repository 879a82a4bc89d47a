"""Memory that this process holds, and the limits on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_STATM: Final = "/proc/self/statm"
_CGROUP_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_GROUP_SHARE: Final = 0.9
"""Share of the control group's limit that the process may hold, where the settings set no limit."""
_NO_LIMIT_BYTES: Final = 1 << 60
"""Bound beyond which a limit means "no limit"; version 1 control groups report a number near 2**63."""


_BODY_PARTS: Final = 3
"""Divisor of the memory limit, or of the machine's memory, for bodies and whole answers."""


def resident_bytes() -> int | None:
    """Return the resident memory of this process, or None where the system does not report it."""
    try:
        with open(_STATM, "rb") as file:
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def group_limit_bytes(files: tuple[Path, ...] = _CGROUP_LIMITS) -> int | None:
    """Return the memory limit of this process' control group, or None without one."""
    for file in files:
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < _NO_LIMIT_BYTES:
            return int(text)
    return None


def memory_limit_bytes(limit_mb: int | None) -> int | None:
    """Return the limit from the settings, else most of the control group's limit, else None."""
    if limit_mb is not None:
        return limit_mb * 1024 * 1024
    limit = group_limit_bytes()
    return None if limit is None else int(_GROUP_SHARE * limit)


def body_budget_bytes(limit: int | None) -> int:
    """Return the memory for request bodies and answers that are held whole, as a part of the process' limit."""
    return (limit or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) // _BODY_PARTS
