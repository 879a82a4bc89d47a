"""A soak of seconds: everything in it works, and nothing is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.e2e
def test_a_short_soak_leaves_nothing_behind() -> None:
    command = [sys.executable, "-m", "loadtests", "soak", "--seconds", "12", "--clients", "6"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["left_behind"], result["wrong_responses"], result["failed"]) == (0, 0, None)
    assert result["requests"] > 50
    assert result["disturbances"] > 0
