"""Programs that building and starting images needs, and how they are called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("buildah", "debootstrap", "unshare", "setpriv")


def obstacles() -> list[str]:
    """Return why no image can be built here, one reason a line; empty where one can."""
    found = [f"{name} is not installed" for name in PROGRAMS if shutil.which(name) is None]
    if os.geteuid() != 0:
        found.append("root is needed to lay out a root file system")
    if sys.version_info[:2] != (3, 11):
        found.append("wheels are collected for Python 3.11, which the base has")
    if not found and not _mounts_are_allowed():
        found.append("mount namespaces are not allowed here")
    return found


def run(command: Sequence[str | Path], *, timeout_s: float, env: Mapping[str, str] | None = None) -> str:
    """Run a program and return its output.

    Raises:
        RuntimeError: The program failed; the message has its last lines.
        subprocess.TimeoutExpired: The program took too long.
    """
    settings = None if env is None else {**os.environ, **env}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=timeout_s, env=settings, check=False
    )
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()[-25:]
        raise RuntimeError("\n".join([f"{Path(str(command[0])).name} ended with {done.returncode}:", *lines]))
    return done.stdout


def _mounts_are_allowed() -> bool:
    trial = ["unshare", "--mount", "--net", "--pid", "--fork", "mount", "-t", "tmpfs", "trial", "/mnt"]
    return subprocess.run(trial, capture_output=True, timeout=30, check=False).returncode == 0
