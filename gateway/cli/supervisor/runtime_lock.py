"""RuntimeLock: one supervisor in one runtime directory."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType

from gateway.util.held_file import HeldFile, held_content
from gateway.util.private_files import UnsafeFolder, private_tree

PID_FILE = "penstock.pid"
_MAX_PID_BYTES = 32


class RuntimeDirError(RuntimeError):
    """The directory cannot be used; the message has the cause and the remedy."""


class AlreadyRunning(RuntimeDirError):
    """Another process holds the directory; the message has its pid and the remedy."""


class RuntimeLock:
    """Holds the directory from `with` to its end, or to the process's; the kernel releases it on any death."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: HeldFile | None = None

    def __enter__(self) -> RuntimeLock:
        """Make the directory if need be and take it. Raises AlreadyRunning or RuntimeDirError."""
        path = self._directory / PID_FILE
        try:
            private_tree(self._directory)
            self._file = HeldFile.take(path, f"{os.getpid()}\n".encode())
        except UnsafeFolder as error:
            raise RuntimeDirError(str(error)) from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise RuntimeDirError(f"{error.filename}: is a symbolic link; remove it") from error
            message = f"{self._directory}: {error.strerror}; choose another with --runtime-dir"
            raise RuntimeDirError(message) from error
        if self._file is None:
            pid = _held_text(path) or "unknown"
            raise AlreadyRunning(
                f"penstock already runs in {self._directory} (pid {pid}); stop it with kill {pid}, "
                "or start another one beside it with --runtime-dir DIR --port 0 --admin-port 0"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the directory go."""
        if self._file is not None:
            self._file.release()
            self._file = None


def running_pid(directory: Path) -> int | None:
    """Return the pid of the supervisor that holds the directory, or None."""
    text = _held_text(directory / PID_FILE)
    return int(text) if text.isdigit() else None


def _held_text(path: Path) -> str:
    return (held_content(path, _MAX_PID_BYTES) or b"").decode(errors="replace").strip()
