"""The JSON line of a bench that is run as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CONDITIONS = {"commit", "hardware", "python", "arrivals", "bench", "failed"}
TIMEOUT_S = 540
"""Engines start slowly on a busy machine."""


def bench(*arguments: str) -> dict[str, Any]:
    """The JSON line of a bench that succeeds."""
    command = [sys.executable, "-m", "loadtests", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert record.keys() >= CONDITIONS
    assert record["failed"] is None
    assert isinstance(record, dict)
    return record
