"""FileToken: a bearer token that a deployment keeps in a file, such as a mounted Secret."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Final

from gateway.access.local_token import fingerprint_of, read_token

_Seen = tuple[int, int, int]

_NEVER: Final[_Seen] = (0, 0, 0)


class FileToken:
    """Bearer token in a file, read again whenever the file changes, so a rotation takes effect at once."""

    def __init__(self, path: Path) -> None:
        """Read the token; raises OSError, or ValueError for a file without one."""
        self.path = path
        self._token = read_token(path).encode()
        self._seen = _state(path)

    def matches(self, given: bytes) -> bool:
        """Return whether `given` is the token, in constant time."""
        self._refresh()
        return bool(self._token) and hmac.compare_digest(self._token, given)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the token, in hex; empty while the file holds none."""
        self._refresh()
        return fingerprint_of(self._token)

    def _refresh(self) -> None:
        seen = _state(self.path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._token = read_token(self.path).encode()
        except (OSError, ValueError):  # a file that is gone or empty: nothing matches until it is back
            self._token = b""


def _state(path: Path) -> _Seen:
    try:
        found = path.stat()
    except OSError:
        return _NEVER
    return found.st_ino, found.st_mtime_ns, found.st_size
