"""LocalToken: who can read a file of the gateway's own runtime directory may do everything the gateway may."""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.util.private_files import open_private, private_folder, tighten_file

FILE_NAME: Final = "admin.token"
_MIN_CHARS: Final = 32


class LocalToken:
    """A secret in a file that only this user reads; made once, shared by the processes of one runtime directory."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._token: bytes | None = None

    def ensure(self) -> None:
        """Make the file unless there is one; raises OSError."""
        private_folder(self.path.parent)
        fresh = self.path.with_name(f"{FILE_NAME}.{os.getpid()}")
        with open_private(fresh, "wb") as stream:
            stream.write(f"{secrets.token_urlsafe(32)}\n".encode())
        try:
            with suppress(FileExistsError):
                os.link(fresh, self.path)  # whole or not at all, and never over another's
        finally:
            fresh.unlink()
        tighten_file(self.path)
        self._token = read_token(self.path).encode()

    def matches(self, given: bytes) -> bool:
        """In a time that does not depend on where it differs."""
        return self._token is not None and hmac.compare_digest(self._token, given)


def read_token(path: Path) -> str:
    """The token in a file; raises OSError, or ValueError for a file that holds none."""
    token = path.read_text().strip()
    if len(token) < _MIN_CHARS:
        raise ValueError(f"{path}: holds no token; delete it and start the gateway again")
    return token
