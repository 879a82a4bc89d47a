"""Files that others name are read without waiting, and no further than asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.util.regular_file import read_regular_file


def test_a_file_is_read_through_links_up_to_the_bound(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("file")
    assert read_regular_file(tmp_path / "file") == b"0123456789"
    assert read_regular_file(tmp_path / "link", 4) == b"0123"


def test_what_has_no_content_of_its_own_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, why in ((tmp_path / "pipe", "no regular file"), (Path(os.devnull), "no regular file"), (tmp_path, "dir")):
        with pytest.raises(OSError, match=why):
            read_regular_file(path)
    with pytest.raises(FileNotFoundError):
        read_regular_file(tmp_path / "none")
