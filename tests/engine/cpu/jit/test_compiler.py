"""Compiled code is kept on disk when a process asks for it, and nothing is written before."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

IMPORT = "import engine.cpu.execution.heads, engine.spec_decode.controller"
COMPILE = "from engine.cpu.multi_step import argmax; argmax.prepare()"
KEEP = "from engine.cpu.jit.compiler import keep_compiled_code; keep_compiled_code()"
FOUND = "print(sum(argmax.likeliest.stats.cache_hits.values()))"


def run(home: Path, *lines: str) -> str:
    """Run a program in a process whose cache folder is `home`."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(home)}
    command = [sys.executable, "-c", "\n".join(lines)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120).stdout


def test_an_import_writes_nothing(tmp_path: Path) -> None:
    run(tmp_path, IMPORT, COMPILE)
    assert list(tmp_path.iterdir()) == []


def test_the_next_process_finds_the_code_in_a_folder_of_the_user_s_own(tmp_path: Path) -> None:
    assert run(tmp_path, KEEP, COMPILE, FOUND) == "0\n"
    (folder,) = (tmp_path / "penstock" / "compiled").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert run(tmp_path, IMPORT, KEEP, COMPILE, FOUND) == "1\n"


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.write_text("")
    assert run(home, KEEP, COMPILE, FOUND) == "0\n"
