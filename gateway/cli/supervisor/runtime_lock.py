"""RuntimeLock: one supervisor in one runtime directory."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType

from gateway.util.private_files import FILE_MODE, UnsafeFolder, private_tree

PID_FILE = "penstock.pid"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class RuntimeDirError(RuntimeError):
    """The directory cannot be used; the message has the cause and the remedy."""


class AlreadyRunning(RuntimeDirError):
    """Another process holds the directory; the message has its pid and the remedy."""


class RuntimeLock:
    """Holds the directory from `with` to its end, or to the process's; the kernel releases it on any death."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd: int | None = None

    def __enter__(self) -> RuntimeLock:
        """Make the directory if need be and take it. Raises AlreadyRunning or RuntimeDirError."""
        try:
            private_tree(self._directory)
            fd = os.open(self._directory / PID_FILE, _FLAGS, FILE_MODE)
        except UnsafeFolder as error:
            raise RuntimeDirError(str(error)) from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise RuntimeDirError(f"{error.filename}: is a symbolic link; remove it") from error
            message = f"{self._directory}: {error.strerror}; choose another with --runtime-dir"
            raise RuntimeDirError(message) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise AlreadyRunning(
                f"penstock already runs in {self._directory} (pid {pid}); stop it with kill {pid}, "
                "or start another one beside it with --runtime-dir DIR --port 0 --admin-port 0"
            ) from error
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        self._fd = fd
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the directory go. The file stays: removing it would race with the next holder."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None


def running_pid(directory: Path) -> int | None:
    """Return the pid of the supervisor that holds the directory, or None."""
    try:
        fd = os.open(directory / PID_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(fd, 32).decode(errors="replace").strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(fd)
    return None
