"""Files that one process holds, and what others read of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.util.held_file import HeldFile, held_content


def test_a_file_has_one_holder_and_its_content_counts_while_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / "held"
    assert held_content(path, 10) is None
    held = HeldFile.take(path, b"first")
    assert held is not None
    assert HeldFile.take(path, b"second") is None
    assert held_content(path, 10) == b"first"
    assert path.stat().st_mode & 0o777 == 0o600
    held.release()
    assert held_content(path, 10) is None
    assert path.read_bytes() == b""


def test_what_a_dead_process_left_states_nothing_and_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "held"
    path.write_bytes(b"a long content that was left over")
    assert held_content(path, 100) is None
    held = HeldFile.take(path, b"new")
    assert held is not None
    assert held_content(path, 100) == b"new"
    held.release()


def test_a_link_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"of somebody else")
    (tmp_path / "held").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        HeldFile.take(tmp_path / "held", b"mine")
    assert held_content(tmp_path / "held", 10) is None
    assert (tmp_path / "other").read_bytes() == b"of somebody else"
