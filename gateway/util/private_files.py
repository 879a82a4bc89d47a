"""Private files: folders 0700 and files 0600 for this user alone, whatever the umask."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Literal

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_PRIVATE_UMASK: Final = 0o077
_ROOT: Final = 0
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_SQLITE_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")


class UnsafeFolder(OSError):
    """Error for a folder that cannot be made private; the message gives reason and remedy."""

    def __init__(self, path: Path, why: str, remedy: str = "choose another with --runtime-dir") -> None:
        super().__init__(f"{path}: {why}; {remedy}")


@contextmanager
def private_umask() -> Iterator[None]:
    """Set a private umask, so libraries and child processes write private files too; for a process' main thread."""
    before = os.umask(_PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(before)


def private_folder(folder: Path) -> None:
    """Create a folder and every missing parent for this user alone; existing ones stay unchanged. Raises OSError."""
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        with suppress(FileExistsError):  # another process was faster
            each.mkdir(mode=FOLDER_MODE)
            each.chmod(FOLDER_MODE)


def private_tree(folder: Path) -> None:
    """Create a folder, or remove other users' rights from it and from everything inside.

    Raises:
        UnsafeFolder: It is a symbolic link, a shared folder or another user's, or holds an entry of another user.
        OSError: The system refuses.
    """
    if folder.is_symlink():
        raise UnsafeFolder(folder, "is a symbolic link, which others may point elsewhere")
    private_folder(folder)
    _check_folder(folder)
    _tighten(folder, folder.lstat(), FOLDER_MODE)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            _check_entry(Path(parent, name))
            _tighten_entry(Path(parent, name))


def tighten_file(path: Path) -> None:
    """Remove other users' rights from a file of this user; links, other users' and missing files stay as they are."""
    _tighten_entry(path)


def private_database(path: Path) -> None:
    """Create SQLite's file before SQLite does, or tighten it; its logs get the mode of the file."""
    private_folder(path.parent)
    with suppress(FileExistsError):
        # Only a new file: closing one that this process has open already would release SQLite's locks on it.
        os.close(_open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    for suffix in _SQLITE_SUFFIXES:
        tighten_file(path.with_name(path.name + suffix))


@contextmanager
def open_private(path: Path, mode: Literal["wb", "ab", "xb"]) -> Iterator[BinaryIO]:
    """Open a file for writing, created for this user alone, or tightened when it exists; raises OSError."""
    flags = {"wb": os.O_TRUNC, "ab": os.O_APPEND, "xb": os.O_EXCL}[mode]
    descriptor = _open(path, os.O_WRONLY | os.O_CREAT | flags)
    with os.fdopen(descriptor, "ab" if mode == "ab" else "wb") as stream:
        yield stream


@contextmanager
def replacing_file(path: Path) -> Iterator[BinaryIO]:
    """Write a private file beside `path`, which then takes its place: readers, also after a crash, see either whole.

    Raises OSError.
    """
    private_folder(path.parent)
    aside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        with open_private(aside, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a private file as `replacing_file` does. Raises OSError."""
    with replacing_file(path) as stream:
        stream.write(content)


def sync_folder(folder: Path) -> None:
    """Flush a rename to disk; file systems without support are ignored."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _open(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    with suppress(PermissionError):  # another user's file, such as a store that a group shares on purpose
        os.fchmod(descriptor, FILE_MODE)
    return descriptor


def _check_folder(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeFolder(folder, "is not a folder")
    if (found.st_mode & stat.S_ISVTX and not found.st_uid) or folder == folder.parent:
        raise UnsafeFolder(folder, "is shared with other programs, which would lose it")
    if found.st_uid != os.geteuid():
        why = f"belongs to another user (uid {found.st_uid}, this process runs as {os.geteuid()})"
        raise UnsafeFolder(folder, why)


def _check_entry(path: Path) -> None:
    """Refuse what another user put into a folder that was open to all, such as a token or a link; root may."""
    with suppress(FileNotFoundError):  # gone meanwhile
        owner = path.lstat().st_uid
        if owner not in (os.geteuid(), _ROOT):
            why = f"belongs to another user (uid {owner}), who may have put it there"
            raise UnsafeFolder(path, why, "remove it, or choose another folder with --runtime-dir")


def _tighten_entry(path: Path) -> None:
    with suppress(FileNotFoundError, PermissionError):  # gone meanwhile, or a file system without modes
        found = path.lstat()
        if found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode):
            _tighten(path, found, stat.S_IMODE(found.st_mode) & ~_OTHERS)


def _tighten(path: Path, found: os.stat_result, mode: int) -> None:
    if stat.S_IMODE(found.st_mode) & _OTHERS:
        os.chmod(path, mode)
