"""HeldFile: a file that its process holds by a lock, so that one left over by a dead process states nothing."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from gateway.util.private_files import FILE_MODE


class HeldFile:
    """A private file with a content, held until `release` or the process's end; the kernel lets go on any death."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, path: Path, content: bytes) -> HeldFile | None:
        """Write a file and hold it; None while another process does. Raises OSError, for a symbolic link too."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        os.ftruncate(fd, 0)
        os.write(fd, content)
        return cls(fd)

    def release(self) -> None:
        """Empty the file and let it go. It stays: removing it would race with the next holder."""
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def held_content(path: Path, max_bytes: int) -> bytes | None:
    """Return the content of a file that a process holds; None where none does, or where it cannot be opened."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(fd, max_bytes)
    finally:
        os.close(fd)
    return None
