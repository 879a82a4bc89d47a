"""Programs as clients: their command lines end well and state what they were answered."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

BIN = Path(sys.executable).parent


def ran(command: list[str], folder: Path, more: Mapping[str, str] | None = None, timeout_s: float = 240.0) -> str:
    """Run a program of this environment and return its output; raises AssertionError with it when it fails."""
    found = {**os.environ, "HOME": str(folder), "NO_COLOR": "1", "CI": "1", **(more or {})}
    done = subprocess.run(
        [str(BIN / command[0]) if (BIN / command[0]).exists() else command[0], *command[1:]],
        cwd=folder,
        env=found,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{output[-3000:]}"
    return output
