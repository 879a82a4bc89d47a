"""Checks of `penstock doctor` that concern the machine: Python, packages, cores, memory, files and the device."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from gateway.cli.supervisor.launch import ENGINE_REMEDY, missing_engine_packages, python_env

Level = Literal["ok", "warn", "fail"]

MIN_PYTHON = (3, 11)
MIN_CORES = 2
MIN_MEMORY_BYTES = 2 * 1024**3
MIN_OPEN_FILES = 1024
GOOD_OPEN_FILES = 16_384
DEVICE_TIMEOUT_S = 60.0
_DEVICE_PROBE = (
    "import torch; gpu = torch.cuda.is_available(); "
    "print(torch.__version__, torch.cuda.get_device_name(0) if gpu else 'cpu', sep='|')"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding; `remedy` is set unless the level is ok."""

    name: str
    level: Level
    message: str
    remedy: str | None = None


def check_python(found: tuple[int, ...]) -> Check:
    """Check that this Python is new enough."""
    text = ".".join(map(str, found))
    if found[:2] < MIN_PYTHON:
        remedy = f"install Python {'.'.join(map(str, MIN_PYTHON))} or newer and make a new environment with it"
        return Check(name="python", level="fail", message=f"{text} is too old", remedy=remedy)
    return Check(name="python", level="ok", message=text)


def check_packages(requirements: list[str] | None) -> Check:
    """Check that every required package is installed in a version that our package accepts."""
    if requirements is None:
        message = "penstock itself is not installed; its requirements cannot be compared"
        return Check(name="packages", level="warn", message=message, remedy="pip install -e . in the checkout")
    from packaging.requirements import Requirement

    wrong, seen = [], []
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if not is_installed(requirement.name):
            wrong.append(f"{requirement.name} is missing")
            continue
        found = version(requirement.name)
        seen.append(f"{requirement.name} {found}")
        if not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} {found} is not {requirement.specifier}")
    if wrong:
        remedy = "pip install --upgrade penstock, or pip install -e . in a checkout"
        return Check(name="packages", level="fail", message="; ".join(wrong), remedy=remedy)
    return Check(name="packages", level="ok", message=", ".join(seen))


def check_cores(num_cores: int) -> Check:
    """Check that there are enough cores for the engines and the gateway."""
    if num_cores < MIN_CORES:
        remedy = f"give this process {MIN_CORES} cores or more; until then expect waits while the engine computes"
        return Check(name="cores", level="warn", message=f"{num_cores} usable", remedy=remedy)
    return Check(name="cores", level="ok", message=f"{num_cores} usable")


def check_memory(num_bytes: int | None) -> Check:
    """Check that both engines fit into memory."""
    if num_bytes is None:
        remedy = f"make sure that {_gib(MIN_MEMORY_BYTES)} are free"
        return Check(name="memory", level="warn", message="unknown on this system", remedy=remedy)
    if num_bytes < MIN_MEMORY_BYTES:
        remedy = f"free memory or raise the container's limit: two engines need {_gib(MIN_MEMORY_BYTES)}"
        return Check(name="memory", level="warn", message=f"{_gib(num_bytes)} available", remedy=remedy)
    return Check(name="memory", level="ok", message=f"{_gib(num_bytes)} available")


def check_open_files(limits: tuple[int, int]) -> Check:
    """Check that enough connections can be open at once."""
    soft, hard = limits
    shown = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    if soft == resource.RLIM_INFINITY or soft >= GOOD_OPEN_FILES:
        return Check(name="files", level="ok", message=f"{shown} may be open")
    room = hard == resource.RLIM_INFINITY or hard >= GOOD_OPEN_FILES
    remedy = f"ulimit -n {GOOD_OPEN_FILES}" if room else "raise the hard limit (LimitNOFILE=, or the container's)"
    level: Level = "fail" if soft < MIN_OPEN_FILES else "warn"
    return Check(name="files", level=level, message=f"{shown} may be open; each connection takes two", remedy=remedy)


def check_device(probe: str = _DEVICE_PROBE) -> Check:
    """Report the device that torch computes on; another process imports torch, this one never does."""
    if missing := missing_engine_packages():
        message = f"this is a gateway alone: {', '.join(missing)} not installed"
        return Check(name="device", level="warn", message=message, remedy=f"for an engine: {ENGINE_REMEDY}")
    env = {**os.environ, **python_env()}
    try:
        found = subprocess.run(
            [sys.executable, "-P", "-c", probe], capture_output=True, text=True, timeout=DEVICE_TIMEOUT_S, env=env
        )
    except subprocess.TimeoutExpired:
        message = f"torch was not imported within {DEVICE_TIMEOUT_S:g} s"
        return Check(name="device", level="warn", message=message, remedy="check the machine's load and disk")
    torch_version, separator, name = found.stdout.strip().partition("|")
    if found.returncode != 0 or not separator:
        problem = found.stderr.strip().splitlines()[-1:] or [f"exit code {found.returncode}"]
        remedy = ENGINE_REMEDY
        return Check(name="device", level="fail", message=f"torch does not work: {problem[0]}", remedy=remedy)
    return Check(name="device", level="ok", message=f"torch {torch_version} on {name}")


def available_memory_bytes(meminfo: Path = Path("/proc/meminfo"), limit: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the memory that is still available: the machine's, or the rest of the container's limit.

    None where the system reports neither.
    """
    try:
        lines = meminfo.read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    try:
        allowed, used = (limit / "memory.max").read_text().strip(), (limit / "memory.current").read_text()
        return free if allowed == "max" else min(free, max(0, int(allowed) - int(used)))
    except (OSError, ValueError):
        return free


def is_installed(name: str) -> bool:
    """Return whether a distribution is installed."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 1024**3:.1f} GiB"
