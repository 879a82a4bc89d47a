"""One supervisor in one directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gateway.cli.supervisor.runtime_lock import AlreadyRunning, RuntimeDirError, RuntimeLock, running_pid


def test_a_second_holder_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "run"
    with RuntimeLock(directory):
        assert running_pid(directory) == os.getpid()
        with pytest.raises(AlreadyRunning, match=rf"already runs in .*run \(pid {os.getpid()}\); stop it with kill"):
            RuntimeLock(directory).__enter__()
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert running_pid(directory) is None


def test_a_directory_that_cannot_be_made_is_an_error_with_its_flag(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeDirError, match=r"file/run: Not a directory; choose another with --runtime-dir"):
        RuntimeLock(tmp_path / "file" / "run").__enter__()


def test_the_directory_can_be_taken_again_after_its_holder_left(tmp_path: Path) -> None:
    for _ in range(2):
        with RuntimeLock(tmp_path):
            pass


def test_a_pid_file_of_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "penstock.pid").write_text("1\n")
    assert running_pid(tmp_path) is None
    with RuntimeLock(tmp_path):
        assert (tmp_path / "penstock.pid").read_text() == f"{os.getpid()}\n"


def test_a_directory_that_is_not_there_runs_nothing(tmp_path: Path) -> None:
    assert running_pid(tmp_path / "none") is None


def test_a_pid_file_that_is_a_link_is_an_error_and_its_target_stays(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "penstock.pid").symlink_to(tmp_path / "outside")
    with pytest.raises(RuntimeDirError, match=r"penstock\.pid: is a symbolic link; remove it"):
        RuntimeLock(tmp_path / "run").__enter__()
    assert (tmp_path / "outside").read_text() == "precious"
