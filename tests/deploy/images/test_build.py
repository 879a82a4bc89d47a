"""Images, really built and started: minutes, so `make images` does it, and this test where a variable asks for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.images.tools import obstacles
from tests.deploy.promql import DEPLOY

_WANTED = os.environ.get("PENSTOCK_TEST_IMAGES", "")
"""Names of images, such as `gateway` or `gateway engine`."""


@pytest.mark.skipif(not _WANTED, reason="takes minutes: PENSTOCK_TEST_IMAGES='gateway engine', or `make images`")
@pytest.mark.timeout(1800)
def test_images_are_built_and_run_as_a_pod_would_run_them(tmp_path: Path) -> None:
    if reasons := obstacles():
        pytest.skip("; ".join(reasons))
    output = tmp_path / "report.json"
    command = [sys.executable, "-m", "deploy.images", *_WANTED.split(), "--output", str(output)]
    done = subprocess.run(command, cwd=DEPLOY.parent, capture_output=True, text=True, timeout=1700, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(output.read_text())
    assert report["faults"] == []
    assert report["seen"].keys() >= set(_WANTED.split())
