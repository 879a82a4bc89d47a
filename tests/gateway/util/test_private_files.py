"""Files and folders that only this user may open, whatever the umask was and whatever was there before."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.util.private_files import (
    UnsafeFolder,
    open_private,
    private_database,
    private_folder,
    private_tree,
    replace_file,
    tighten_file,
)


@pytest.fixture(params=[0o000, 0o022, 0o077], autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_folder_and_all_that_were_missing_above_it_are_private(tmp_path: Path) -> None:
    private_folder(tmp_path / "a" / "b" / "c")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o755)
    private_folder(tmp_path / "shared")
    private_folder(tmp_path / "shared" / "own")
    assert (mode(tmp_path / "shared"), mode(tmp_path / "shared" / "own")) == (0o755, 0o700)


@pytest.mark.parametrize("kind", ["wb", "ab", "xb"])
def test_a_file_is_private_from_its_first_moment(tmp_path: Path, kind: str) -> None:
    with open_private(tmp_path / "new", kind) as stream:  # type: ignore[arg-type]
        assert mode(tmp_path / "new") == 0o600
        stream.write(b"x")
    assert (tmp_path / "new").read_bytes() == b"x"


@pytest.mark.parametrize(("kind", "expected"), [("wb", b"b"), ("ab", b"ab")])
def test_a_file_that_was_open_to_others_is_tightened_when_it_is_written(
    tmp_path: Path, kind: str, expected: bytes
) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"a")
    path.chmod(0o666)
    with open_private(path, kind) as stream:  # type: ignore[arg-type]
        stream.write(b"b")
    assert (mode(path), path.read_bytes()) == (0o600, expected)
    with pytest.raises(FileExistsError), open_private(path, "xb"):
        pass


def test_a_replaced_file_is_private_and_whole_and_alone(tmp_path: Path) -> None:
    path = tmp_path / "run" / "copy"
    replace_file(path, b"old")
    path.chmod(0o644)
    contents = [str(number).encode() * 10_000 for number in range(8)]
    threads = [threading.Thread(target=replace_file, args=(path, content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert mode(path) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_cannot_be_replaced_stays_and_nothing_is_left_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "copy"
    replace_file(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_everything_in_a_tree_is_tightened_and_what_was_narrow_stays_narrow(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "recorded" / "deep").mkdir(parents=True)
    for name in ("store.sqlite3", "store.sqlite3-wal", "recorded/deep/tape.jsonl", "read-only"):
        (run / name).write_text("x")
        (run / name).chmod(0o644)
    (run / "read-only").chmod(0o444)
    for name in (".", "recorded", "recorded/deep"):
        (run / name).chmod(0o777)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(run / "a.sock"))
        (run / "a.sock").chmod(0o666)
        private_tree(run)
        modes = {str(path.relative_to(run)): mode(path) for path in (run, *run.rglob("*"))}
    assert modes == {
        ".": 0o700,
        "recorded": 0o700,
        "recorded/deep": 0o700,
        "recorded/deep/tape.jsonl": 0o600,
        "store.sqlite3": 0o600,
        "store.sqlite3-wal": 0o600,
        "read-only": 0o400,
        "a.sock": 0o600,
    }


def test_links_inside_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_text("x")
    before = {}
    for path in (outside, outside / "folder", outside / "file"):
        path.chmod(0o755)
        before[path] = mode(path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "folder").symlink_to(outside)
    (tmp_path / "run" / "file").symlink_to(outside / "file")
    (tmp_path / "run" / "broken").symlink_to(outside / "none")
    private_tree(tmp_path / "run")
    tighten_file(tmp_path / "run" / "file")
    assert {path: mode(path) for path in before} == before


def test_a_tree_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real").chmod(0o755)
    (tmp_path / "run").symlink_to(tmp_path / "real")
    with pytest.raises(UnsafeFolder, match=r"run: is a symbolic link.*; choose another with --runtime-dir"):
        private_tree(tmp_path / "run")
    assert mode(tmp_path / "real") == 0o755
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    with pytest.raises(UnsafeFolder, match="is a symbolic link"):
        private_tree(tmp_path / "dangling")


def test_a_tree_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(
        UnsafeFolder, match=rf"belongs to another user \(uid {owner}, this process runs as {owner + 1}\)"
    ):
        private_tree(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_a_tree_that_was_given_to_another_user_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    os.chown(run, 65532, 65532)
    with pytest.raises(UnsafeFolder, match="belongs to another user"):
        private_tree(run)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
@pytest.mark.parametrize("kind", ["file", "link", "folder", "deep"])
def test_what_another_user_put_into_an_open_folder_is_refused(tmp_path: Path, kind: str) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / "recorded").mkdir(parents=True)
    run.chmod(0o777)
    outside.write_text("precious")
    planted = run / "recorded" / "salt" if kind == "deep" else run / "admin.token"
    if kind == "link":
        planted.symlink_to(outside)
    elif kind == "folder":
        planted.mkdir()
    else:
        planted.write_text("a token that somebody else knows")
    os.chown(planted, 65532, 65532, follow_symlinks=False)
    with pytest.raises(UnsafeFolder, match=rf"{planted.name}: belongs to another user \(uid 65532\).*; remove it"):
        private_tree(run)
    assert outside.read_text() == "precious"


def test_what_root_put_into_a_folder_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    private_tree(tmp_path)
    found = os.lstat

    def of_root(path: os.PathLike[str] | str) -> os.stat_result:
        fields = list(found(path))
        fields[stat.ST_UID] = 0 if str(path).endswith("file") else fields[stat.ST_UID]
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "lstat", of_root)
    private_tree(tmp_path)


@pytest.mark.parametrize("kind", ["wb", "ab"])
def test_a_link_is_never_written_through(tmp_path: Path, kind: str) -> None:
    (tmp_path / "outside").write_text("precious")
    (tmp_path / "file").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="symbolic links"), open_private(tmp_path / "file", kind):  # type: ignore[arg-type]
        pass
    assert (tmp_path / "outside").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns shared folders")
def test_a_folder_that_all_programs_share_is_not_taken_from_them(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(UnsafeFolder, match="is shared with other programs"):
        private_tree(shared)
    with pytest.raises(UnsafeFolder, match="is shared with other programs"):
        private_tree(Path("/"))
    assert mode(shared) == 0o1777


def test_a_tree_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    with pytest.raises(UnsafeFolder, match="is not a folder"):
        private_tree(tmp_path / "run")


def test_a_database_and_its_logs_are_private(tmp_path: Path) -> None:
    path = tmp_path / "own" / "store.sqlite3"
    private_database(path)
    assert (mode(path.parent), mode(path), path.read_bytes()) == (0o700, 0o600, b"")
    for suffix in ("", "-wal", "-shm", "-journal"):
        (tmp_path / "own" / f"store.sqlite3{suffix}").touch()
        (tmp_path / "own" / f"store.sqlite3{suffix}").chmod(0o664)
    private_database(path)
    assert {mode(each) for each in path.parent.iterdir()} == {0o600}
