"""How much memory this process holds, and how much it may."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_STATM: Final = "/proc/self/statm"
_CGROUP_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_GROUP_SHARE: Final = 0.9
"""Of what the control group allows, where the settings name no limit."""
_NO_LIMIT_BYTES: Final = 1 << 60
"""Control groups of the first version say "no limit" with a number near 2**63."""


_BODY_PARTS: Final = 3
"""Bodies and whole answers may take one of so many parts of the memory limit, or of the machine's memory."""


def resident_bytes() -> int | None:
    """Memory that this process holds now; None where the system does not say."""
    try:
        with open(_STATM, "rb") as file:
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def group_limit_bytes(files: tuple[Path, ...] = _CGROUP_LIMITS) -> int | None:
    """What the control group of this process may hold; None without a limit."""
    for file in files:
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < _NO_LIMIT_BYTES:
            return int(text)
    return None


def memory_limit_bytes(limit_mb: int | None) -> int | None:
    """What the settings say, else most of what the control group allows."""
    if limit_mb is not None:
        return limit_mb * 1024 * 1024
    limit = group_limit_bytes()
    return None if limit is None else int(_GROUP_SHARE * limit)


def body_budget_bytes(limit: int | None) -> int:
    """Memory for request bodies and answers that are held whole, of what this process may hold."""
    return (limit or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) // _BODY_PARTS
