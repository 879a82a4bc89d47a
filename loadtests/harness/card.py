"""The result of a bench: a card for people and, last, one line of JSON that carries its conditions."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

Value = float | int | str | None

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What one bench measured, and how."""

    bench: str
    arrivals: str
    """How load was offered: `closed loop, 64 connections`, `Poisson, 500 per s`, ..."""
    results: Mapping[str, Value]
    """The JSON keys; units are in the names."""
    notes: tuple[str, ...] = field(default=())
    """Lines for people only."""
    failed: str | None = None
    """Why the result must not be believed, if so; the process then ends with 1."""

    def print_to(self, stream: TextIO) -> None:
        """The card, then the JSON line."""
        conditions = environment()
        lines = [f"== {self.bench} ==", f"load      {self.arrivals}"]
        lines += [f"{name:<9} {value}" for name, value in conditions.items()]
        lines += [f"  {name:<28} {_shown(value)}" for name, value in self.results.items()]
        lines += [f"  {note}" for note in self.notes]
        if self.failed is not None:
            lines.append(f"FAILED: {self.failed}")
        record = {"bench": self.bench, **self.results, "failed": self.failed, "arrivals": self.arrivals, **conditions}
        print("\n".join(lines), file=stream)
        print(json.dumps(record), file=stream, flush=True)


def environment() -> dict[str, str]:
    """Commit, hardware and Python of this run."""
    return {"commit": _commit(), "hardware": _hardware(), "python": platform.python_version()}


def _commit() -> str:
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return "unknown"  # an unpacked archive, or no git on this machine
    return found.stdout.strip()


def _hardware() -> str:
    model = platform.processor() or platform.machine()
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    for line in text.splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    # Not this process' affinity: a bench may have pinned itself to a part of the machine.
    return f"{os.cpu_count()} cores of {model}, {platform.system()} {platform.release()}"


def _shown(value: Value) -> str:
    return f"{value:,.3f}" if isinstance(value, float) else f"{value}"
