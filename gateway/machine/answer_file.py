"""AnswerFile: cached responses in the machine's store file, read by a worker without a copy of its own.

The control process writes evictions, all processes write new entries, by the embedded store. A reader never waits for
a writer (SQLite's write-ahead log), and the system's page cache holds the file once for all processes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gateway.cache.exact.entry import CacheEntry, decode_entry
from gateway.cache.sharing.notices import SPACE, entry_key

_AGAIN_S: Final = 1.0
"""Time before a file that could not be read is opened again."""
_MAPPED_BYTES: Final = 1024 * 1024 * 1024
_READ: Final = (
    "SELECT value FROM entries WHERE space = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)"  # see SqliteFile
)


class AnswerFile:
    """The entries of the file, for the event loop's thread: a read takes some ten microseconds."""

    def __init__(self, path: Path, *, wall: Callable[[], float], on_failure: Callable[[Exception], None]) -> None:
        """Prepare the reader; `on_failure` gets each error, of which the lookup is then a miss."""
        self._path = path
        self._wall = wall
        self._on_failure = on_failure
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        self._look_at = 0.0

    def entry(self, exact: bytes) -> CacheEntry | None:
        """Return the entry with this fingerprint; None when there is none, or the file cannot be read."""
        now = self._wall()
        db = self._opened(now)
        if db is None:
            return None
        try:
            row = db.execute(_READ, (SPACE, entry_key(exact), now)).fetchone()
        except sqlite3.Error as error:
            self._fail(error)
            return None
        entry = None if row is None else decode_entry(row[0])
        return entry if entry is not None and entry.exact == exact else None

    def close(self) -> None:
        """Close the file. Idempotent."""
        db, self._db = self._db, None
        if db is not None:
            db.close()

    def _opened(self, now: float) -> sqlite3.Connection | None:
        """Return the connection; a file that was replaced is opened anew within a second."""
        if abs(now - self._look_at) < _AGAIN_S:
            return self._db
        self._look_at = now
        try:
            inode = self._path.stat().st_ino
            if self._db is None or inode != self._inode:
                self.close()
                db = sqlite3.connect(self._path, timeout=0.0, isolation_level=None)
                db.execute("PRAGMA query_only = 1")
                db.execute(f"PRAGMA mmap_size = {_MAPPED_BYTES}")
                self._db, self._inode = db, inode
        except FileNotFoundError:
            self.close()  # nothing was stored yet
        except (OSError, sqlite3.Error) as error:
            self._fail(error)
        return self._db

    def _fail(self, error: Exception) -> None:
        self._on_failure(error)
        self.close()
