"""A token in a file: it follows the file, and a file without one opens nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.access.file_token import FileToken

FIRST, SECOND = "a" * 40, "b" * 40


def rotate(path: Path, token: str) -> None:
    """Replace the file as a mounted Secret is replaced: another file under the same name."""
    fresh = path.with_name("fresh")
    fresh.write_text(token)
    os.replace(fresh, path)


def test_a_rotated_token_counts_at_once_and_the_old_one_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{FIRST}\n")
    token = FileToken(path)
    assert token.matches(FIRST.encode())
    rotate(path, SECOND)
    assert not token.matches(FIRST.encode())
    assert token.matches(SECOND.encode())


def test_nothing_matches_while_the_file_is_gone_or_too_short(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(FIRST)
    token = FileToken(path)
    path.unlink()
    assert not token.matches(FIRST.encode())
    assert not token.matches(b"")
    rotate(path, "short")
    assert not token.matches(b"short")
    rotate(path, FIRST)
    assert token.matches(FIRST.encode())


@pytest.mark.parametrize("content", ["", " \n", "too-short"])
def test_a_file_without_a_token_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(ValueError, match="holds no token"):
        FileToken(path)
    with pytest.raises(OSError, match="missing"):
        FileToken(tmp_path / "missing")
