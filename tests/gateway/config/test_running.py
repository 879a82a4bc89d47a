"""Who listens in a runtime directory, as commands beside it find out."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gateway.config.running import RUNNING_FILE, RunningFile, running_product


def test_the_addresses_are_known_while_the_process_listens_and_not_longer(tmp_path: Path) -> None:
    with RunningFile(tmp_path, public="127.0.0.1:40001", admin="127.0.0.1:40002"):
        found = running_product(tmp_path)
        assert found is not None
        assert (found.pid, found.public, found.admin) == (os.getpid(), "127.0.0.1:40001", "127.0.0.1:40002")
        assert stat.S_IMODE((tmp_path / RUNNING_FILE).stat().st_mode) == 0o600
    assert running_product(tmp_path) is None


def test_a_file_that_a_dead_process_left_states_nothing(tmp_path: Path) -> None:
    (tmp_path / RUNNING_FILE).write_text('{"pid": 1, "public": "127.0.0.1:1", "admin": "127.0.0.1:2"}')
    assert running_product(tmp_path) is None
    assert running_product(tmp_path / "none") is None


def test_the_gateway_below_a_supervisor_leaves_its_file_alone(tmp_path: Path) -> None:
    with RunningFile(tmp_path, public="127.0.0.1:1", admin="127.0.0.1:2"):
        with RunningFile(tmp_path, public="127.0.0.1:3", admin="127.0.0.1:4"):
            pass
        found = running_product(tmp_path)
        assert found is not None
        assert found.admin == "127.0.0.1:2"


def test_a_socket_is_found_from_another_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with RunningFile(tmp_path, public="unix:p.sock", admin="unix:/a.sock"):
        found = running_product(tmp_path)
        assert found is not None
        assert (found.public, found.admin) == (f"unix:{tmp_path}/p.sock", "unix:/a.sock")


def test_a_file_of_another_version_states_nothing(tmp_path: Path) -> None:
    with RunningFile(tmp_path, public="127.0.0.1:1", admin="127.0.0.1:2"):
        (tmp_path / RUNNING_FILE).write_text('{"where": 1}')
        assert running_product(tmp_path) is None
