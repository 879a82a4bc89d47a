"""LocalToken: a token in the runtime directory that gives its readers all rights of the gateway."""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from gateway.util.private_files import open_private, private_folder, tighten_file
from gateway.util.regular_file import read_regular_file

FILE_NAME: Final = "admin.token"
_MIN_CHARS: Final = 32
_MAX_BYTES: Final = 4096


class LocalToken:
    """Secret in a file that only this user reads; made once and shared by all processes of one runtime directory."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._token: bytes | None = None

    def ensure(self) -> None:
        """Create the file unless it exists, and read the token; raises OSError."""
        private_folder(self.path.parent)
        fresh = self.path.with_name(f"{FILE_NAME}.{os.getpid()}")
        with open_private(fresh, "wb") as stream:
            stream.write(f"{secrets.token_urlsafe(32)}\n".encode())
        try:
            with suppress(FileExistsError):
                os.link(fresh, self.path)  # atomic, and never over another process's token
        finally:
            fresh.unlink()
        tighten_file(self.path)
        self._token = read_token(self.path).encode()

    def matches(self, given: bytes) -> bool:
        """Return whether `given` is the token, in constant time."""
        return self._token is not None and hmac.compare_digest(self._token, given)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the token, in hex; empty without a token."""
        return fingerprint_of(self._token)


def fingerprint_of(token: bytes | None) -> str:
    """Return the SHA-256 of a token, in hex; empty without a token."""
    return sha256(token).hexdigest() if token else ""


def read_token(path: Path) -> str:
    """Return the token in a file; raises OSError, or ValueError for a file without one."""
    token = read_regular_file(path, _MAX_BYTES).decode().strip()
    if len(token) < _MIN_CHARS:
        raise ValueError(f"{path}: holds no token; delete it and start the gateway again")
    return token
