"""The patch of a policy file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.admin.handlers.unified_diff import patch_name, unified_diff


@pytest.mark.parametrize("name", ["my policy.yaml", 'it"s.yaml', "für.yaml", "tab\there.yaml", "back\\slash.yaml"])
def test_a_patch_finds_its_file_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    if shutil.which("patch") is None:
        pytest.skip("there is no patch on this machine")
    (tmp_path / name).write_text("a: 1\n")
    text = unified_diff("a: 1\n", "a: 2\n", patch_name(name), patch_name(name))
    subprocess.run(("patch", "-p0", "-s"), cwd=tmp_path, input=text.encode(), check=True)
    assert (tmp_path / name).read_text() == "a: 2\n"
