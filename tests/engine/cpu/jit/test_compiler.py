"""Compiled code is kept on disk when a process asks for it, and nothing is written before."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

IMPORT = "import engine.cpu.execution.heads, engine.spec_decode.controller"
COMPILE = "from engine.cpu.multi_step import argmax; argmax.prepare()"
KEEP = "from engine.cpu.jit.compiler import keep_compiled_code; keep_compiled_code()"
NO_SPACE = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
FOUND = "print(sum(argmax.likeliest.stats.cache_hits.values()))"


def run(home: Path, *lines: str) -> str:
    """What a program prints in a process whose cache folder is `home`, its warnings included."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", "\n".join(lines)]
    found = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
    )
    assert found.returncode == 0, found.stdout
    return found.stdout


def test_an_import_writes_nothing(tmp_path: Path) -> None:
    run(tmp_path, IMPORT, COMPILE)
    assert list(tmp_path.iterdir()) == []


def test_the_next_process_finds_the_code_in_a_folder_of_the_user_s_own(tmp_path: Path) -> None:
    assert run(tmp_path, KEEP, COMPILE, FOUND) == "0\n"
    (folder,) = (tmp_path / "penstock" / "compiled").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert run(tmp_path, IMPORT, KEEP, COMPILE, FOUND) == "1\n"


def test_a_folder_that_cannot_be_made_stores_nothing_and_logs_it_once(tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.write_text("")
    warning, found = run(home, KEEP, COMPILE, FOUND).splitlines()
    assert warning.startswith(f"compiled code in {home}/penstock/compiled cannot be stored, ")
    assert "set XDG_CACHE_HOME to a folder that can be written" in warning
    assert "NotADirectoryError" in warning
    assert found == "0"


def test_a_full_disk_stores_nothing_and_logs_it_once(tmp_path: Path) -> None:
    warning, found = run(tmp_path, NO_SPACE, KEEP, COMPILE, FOUND).splitlines()
    assert "cannot be stored" in warning
    assert "File too large" in warning
    assert found == "0"


def spoil(path: Path, damage: str) -> None:
    content = path.read_bytes()
    half = len(content) // 2
    path.write_bytes(
        {
            "truncated": content[:half],
            "zeroed": content[:half] + bytes(len(content) - half),
            "one byte": content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :],
            "empty": b"",
        }[damage]
    )


@pytest.mark.parametrize(
    ("ending", "damage"),
    [("nbc", "truncated"), ("nbc", "zeroed"), ("nbc", "one byte"), ("nbi", "truncated"), ("nbi", "empty")],
)
def test_damaged_code_is_compiled_anew_and_the_next_process_finds_it(tmp_path: Path, ending: str, damage: str) -> None:
    run(tmp_path, KEEP, COMPILE)
    files = list(tmp_path.rglob(f"argmax.likeliest*.{ending}"))
    assert files
    for file in files:
        spoil(file, damage)
    warning, found = run(tmp_path, KEEP, COMPILE, FOUND).splitlines()
    assert "cannot be read and is compiled anew" in warning
    assert found == "0"
    assert run(tmp_path, KEEP, COMPILE, FOUND) == "1\n"


def test_an_index_that_names_code_of_other_arguments_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text("def successor(number):\n    return number + 1\n")
    begin = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import sums; from numba import types"
    compiler = "from engine.cpu.jit.compiler import compiled; successor = compiled(sums.successor)"
    run(tmp_path, KEEP, begin, compiler, "successor.compile((types.int64,)); successor.compile((types.float64,))")
    (index,) = tmp_path.rglob("sums.successor*.nbi")
    index.write_bytes(index.read_bytes().replace(b".2.nbc", b".1.nbc"))
    read = "successor.compile((types.float64,)); print(successor(1.5))"
    warning, found = run(tmp_path, KEEP, begin, compiler, read).splitlines()
    assert "cannot be read and is compiled anew (DamagedCodeError" in warning
    assert found == "2.5"


def test_a_damaged_index_that_cannot_be_written_anew_ends_no_start(tmp_path: Path) -> None:
    run(tmp_path, KEEP, COMPILE)
    for file in tmp_path.rglob("argmax.likeliest*.nbi"):
        spoil(file, "truncated")
    lines = run(tmp_path, KEEP, NO_SPACE, COMPILE, FOUND).splitlines()
    assert "cannot be read and is compiled anew" in lines[0]
    assert lines[-1] == "0"
