"""File descriptors: how many the process may open, and how the listeners share them with everything else."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence

_MIN_SHARE = 8
_STDERR = 2


def raise_open_file_limit() -> int:
    """Raise this process's soft limit to its hard one and return it; meant for the start of a server process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return open_file_limit()


def open_file_limit() -> int:
    """Return the number of files that this process may have open; very large where there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def share_connections(wanted: Sequence[int], open_files: int) -> list[int]:
    """Connections each listener may accept: what it wants, or its part of half the open files.

    The other half is for upstreams, stores and logs: a flood must not keep the gateway from answering those that
    are in, and must not take the admin listener's part.
    """
    budget = open_files // 2
    if sum(wanted) <= budget:
        return list(wanted)
    return [min(want, max(_MIN_SHARE, budget * want // sum(wanted))) for want in wanted]


def release_inherited(descriptors: Sequence[int]) -> None:
    """Close what was inherited, which the listeners have duplicates of, so that none accepts once they are closed."""
    for number in descriptors:
        if number > _STDERR:
            os.close(number)
