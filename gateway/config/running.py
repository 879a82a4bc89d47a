"""RunningFile: the addresses of the product that runs in a runtime directory, for commands beside it.

The process that listens holds a lock on the file. The kernel releases it on any death, so a file without a lock is
left over and states nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from gateway.util.held_file import HeldFile, held_content

RUNNING_FILE: Final = "running.json"
_MAX_BYTES: Final = 4096
_UNIX: Final = "unix:"


class RunningProduct(msgspec.Struct, frozen=True, kw_only=True):
    """The process that listens, and where; addresses are `host:port`, `[v6]:port` or `unix:/path`."""

    pid: int
    public: str
    admin: str
    public_cert: str | None = None
    """Path of the listener's certificate; None without TLS."""
    admin_cert: str | None = None

    @property
    def public_listener(self) -> tuple[str, Path | None]:
        """Return the address for clients, and its certificate."""
        return self.public, None if self.public_cert is None else Path(self.public_cert)

    @property
    def admin_listener(self) -> tuple[str, Path | None]:
        """Return the address for operators, and its certificate."""
        return self.admin, None if self.admin_cert is None else Path(self.admin_cert)


class RunningFile:
    """The file while this process listens: written at `with`, empty after it.

    The first process in a directory has it. A further one, such as the gateway below `penstock up`, changes nothing.
    """

    def __init__(
        self,
        directory: Path,
        *,
        public: str,
        admin: str,
        public_cert: Path | None = None,
        admin_cert: Path | None = None,
    ) -> None:
        """Prepare the file; relative paths of sockets are those of this process."""
        self._path = directory / RUNNING_FILE
        self._product = RunningProduct(
            pid=os.getpid(),
            public=_absolute(public),
            admin=_absolute(admin),
            public_cert=None if public_cert is None else str(public_cert),
            admin_cert=None if admin_cert is None else str(admin_cert),
        )
        self._file: HeldFile | None = None

    def __enter__(self) -> RunningFile:
        """Write the file, unless another process has it. Raises OSError."""
        self._file = HeldFile.take(self._path, msgspec.json.encode(self._product) + b"\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Empty the file and let it go."""
        if self._file is not None:
            self._file.release()
            self._file = None


def running_product(directory: Path) -> RunningProduct | None:
    """Return what runs in a runtime directory; None where nothing does, or its user keeps others out."""
    content = held_content(directory / RUNNING_FILE, _MAX_BYTES)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=RunningProduct)
    except msgspec.DecodeError:  # a file of another version, or one that is being written
        return None


def _absolute(address: str) -> str:
    return f"{_UNIX}{os.path.abspath(address.removeprefix(_UNIX))}" if address.startswith(_UNIX) else address
