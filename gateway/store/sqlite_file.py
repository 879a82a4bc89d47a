"""SqliteFile: the store's operations on one SQLite file, synchronous, for one thread, inside its transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gateway.store.base import (
    MAX_CHANGES,
    REPEAT_S,
    Changes,
    Exchanged,
    Hold,
    LogEntry,
    StoreChange,
    StoreEntry,
    StoreLoss,
    StoreUnavailable,
)
from gateway.store.meter import Draw, Grant, draw_units, even_share
from gateway.util.private_files import private_database

SCHEMA_VERSION: Final = 1
BUSY_TIMEOUT_S: Final = 0.1
"""Time for which another process may lock the file before the operation counts as too slow."""
MAX_CHECKED_BYTES: Final = 32 * 1024 * 1024
"""Size up to which a file is checked when it is opened."""
_EXPIRED_AT_ONCE: Final = 16
_REPLIES: Final = ".replies"
"""End of the space with the results of each holder's last exchange."""
_decode_reply: Final = msgspec.msgpack.Decoder(Exchanged).decode

_SCHEMA: Final = """
CREATE TABLE spaces (space TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE entries (
    space TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL, expires_at REAL,
    PRIMARY KEY (space, key));
CREATE INDEX entries_by_expiry ON entries (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE changes (
    space TEXT NOT NULL, version INTEGER NOT NULL, key TEXT NOT NULL, PRIMARY KEY (space, version)) WITHOUT ROWID;
CREATE TABLE log (
    space TEXT NOT NULL, name TEXT NOT NULL, seq INTEGER NOT NULL, payload BLOB NOT NULL,
    PRIMARY KEY (space, name, seq));
CREATE TABLE meters (
    space TEXT NOT NULL, meter TEXT NOT NULL, bucket INTEGER NOT NULL, units INTEGER NOT NULL,
    PRIMARY KEY (space, meter, bucket)) WITHOUT ROWID;
CREATE TABLE holds (
    space TEXT NOT NULL, name TEXT NOT NULL, holder TEXT NOT NULL, units INTEGER NOT NULL, expires_at REAL NOT NULL,
    PRIMARY KEY (space, name, holder)) WITHOUT ROWID;
"""

_LOSSES: Final = {
    sqlite3.SQLITE_FULL: StoreLoss.FULL,
    sqlite3.SQLITE_READONLY: StoreLoss.READ_ONLY,
    sqlite3.SQLITE_BUSY: StoreLoss.SLOW,
    sqlite3.SQLITE_LOCKED: StoreLoss.SLOW,
    sqlite3.SQLITE_CORRUPT: StoreLoss.CORRUPT,
    sqlite3.SQLITE_NOTADB: StoreLoss.CORRUPT,
}


def loss_of(error: sqlite3.Error) -> StoreLoss:
    """Return the reason for an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", None)
    return StoreLoss.DOWN if code is None else _LOSSES.get(code & 0xFF, StoreLoss.DOWN)


class SqliteFile:
    """The open file. Raises StoreUnavailable when it cannot be opened, sqlite3.Error later on."""

    def __init__(self, path: Path, wall: Callable[[], float]) -> None:
        """Open the file; `wall` is the store's clock, in seconds since 1970."""
        self.path = path
        self._wall = wall
        try:
            private_database(path)
            self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        except OSError as error:
            raise StoreUnavailable(StoreLoss.DOWN, f"{path}: {error.strerror}", was_sent=False) from error
        except sqlite3.Error as error:
            raise StoreUnavailable(loss_of(error), f"{path}: {error}", was_sent=False) from error
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise
        self.inode = path.stat().st_ino

    def _prepare(self) -> None:
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA journal_size_limit = 16777216")
            if self.path.stat().st_size <= MAX_CHECKED_BYTES:
                (verdict,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
                if verdict != "ok":
                    raise StoreUnavailable(StoreLoss.CORRUPT, f"{self.path}: {verdict}", was_sent=False)
            self._db.execute("BEGIN IMMEDIATE")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _SCHEMA.strip().rstrip(";").split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreUnavailable(loss_of(error), f"{self.path}: {error}", was_sent=False) from error
        if version not in (0, SCHEMA_VERSION):
            message = f"{self.path}: written by another version of this program (schema {version}); use another file"
            raise StoreUnavailable(StoreLoss.REFUSED, message, was_sent=False)

    def close(self) -> None:
        """Close the file, which is whole on disk afterwards."""
        self._db.close()

    def begin(self, *, is_read: bool = False) -> None:
        """Start a transaction, which may write unless it is for reads alone."""
        self._db.execute("BEGIN" if is_read else "BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit everything since `begin`."""
        self._db.execute("COMMIT")

    def roll_back(self) -> None:
        """Undo everything since `begin`, if SQLite has not done so itself."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    # Operations, as in Store

    def get(self, space: str, key: str) -> StoreEntry | None:
        """Implement `Store.get`."""
        row = self._db.execute(
            "SELECT value, version FROM entries WHERE space = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)",
            (space, key, self._wall()),
        ).fetchone()
        return None if row is None else StoreEntry(row[0], row[1])

    def put(self, space: str, key: str, value: bytes, *, ttl_s: float | None, expect: int | None) -> int | None:
        """Implement `Store.put`."""
        if expect is not None and self._version_of(space, key) != expect:
            return None
        version = self._announce(space, key)
        now = self._wall()
        self._db.execute(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)",
            (space, key, value, version, None if ttl_s is None else now + ttl_s),
        )
        if ttl_s is not None:
            self._db.execute(
                "DELETE FROM entries WHERE rowid IN (SELECT rowid FROM entries WHERE expires_at <= ? LIMIT ?)",
                (now, _EXPIRED_AT_ONCE),
            )
        return version

    def delete(self, space: str, key: str, *, expect: int | None) -> bool:
        """Implement `Store.delete`."""
        version = self._version_of(space, key)
        if version == 0 or (expect is not None and version != expect):
            return False
        self._db.execute("DELETE FROM entries WHERE space = ? AND key = ?", (space, key))
        self._announce(space, key)
        return True

    def keys(self, space: str, *, after: str, limit: int) -> tuple[str, ...]:
        """Implement `Store.keys`."""
        rows = self._db.execute(
            "SELECT key FROM entries WHERE space = ? AND key > ? AND (expires_at IS NULL OR expires_at > ?) "
            "ORDER BY key LIMIT ?",
            (space, after, self._wall(), limit),
        )
        return tuple(key for (key,) in rows)

    def changes(self, space: str, *, after: int | None, limit: int) -> Changes:
        """Implement `Store.changes`."""
        newest = self._space_version(space)
        if after is None or after == newest:
            return Changes(newest, ())
        if after > newest or after < newest - MAX_CHANGES:
            return Changes(newest, (), is_gap=True)
        rows = self._db.execute(
            "SELECT version, key FROM changes WHERE space = ? AND version > ? ORDER BY version LIMIT ?",
            (space, after, limit),
        )
        latest = {key: version for version, key in rows}
        return Changes(max(latest.values()), tuple(StoreChange(version, key) for key, version in _by_version(latest)))

    def append(self, space: str, log: str, payload: bytes, *, after: int | None) -> int | None:
        """Implement `Store.append`."""
        (last,) = self._db.execute(
            "SELECT COALESCE(MAX(seq), 0) FROM log WHERE space = ? AND name = ?", (space, log)
        ).fetchone()
        if after is not None and after != last:
            return None
        self._db.execute("INSERT INTO log VALUES (?, ?, ?, ?)", (space, log, last + 1, payload))
        return int(last) + 1

    def read_log(self, space: str, log: str, *, after: int, limit: int) -> tuple[LogEntry, ...]:
        """Implement `Store.read_log`."""
        rows = self._db.execute(
            "SELECT seq, payload FROM log WHERE space = ? AND name = ? AND seq > ? ORDER BY seq LIMIT ?",
            (space, log, after, limit),
        )
        return tuple(LogEntry(seq, payload) for seq, payload in rows)

    def exchange(
        self, space: str, holder: str, draws: Sequence[Draw], hold: Hold | None, *, number: int = 0
    ) -> Exchanged:
        """Implement `Store.exchange`."""
        place, now = (space + _REPLIES, holder), self._wall()
        if number:
            last = self._db.execute("SELECT version, value FROM entries WHERE space = ? AND key = ?", place).fetchone()
            if last is not None and last[0] >= number:
                return _decode_reply(last[1])
        held, num_holders = (0, 1) if hold is None else self._keep(space, holder, hold, now)
        grants = tuple(self._draw(space, request, now, num_holders) for request in draws)
        result = Exchanged(now, grants, held, num_holders)
        if number:
            reply = (*place, msgspec.msgpack.encode(result), number, now + REPEAT_S)
            self._db.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)", reply)
        return result

    def room(self) -> None:
        """Return None: a file has no limit."""

    def ping(self) -> None:
        """Implement `Store.ping`."""
        self._db.execute("INSERT OR REPLACE INTO spaces VALUES ('penstock.ping', ?)", (int(self._wall()),))

    def _draw(self, space: str, request: Draw, now: float, num_holders: int) -> Grant:
        place = (space, request.meter.name)
        before = dict(self._db.execute("SELECT bucket, units FROM meters WHERE space = ? AND meter = ?", place))
        counts = dict(before)
        grant = draw_units(counts, request, now, num_holders)
        for bucket, units in counts.items() - before.items():
            self._db.execute("INSERT OR REPLACE INTO meters VALUES (?, ?, ?, ?)", (*place, bucket, units))
        for bucket in before.keys() - counts.keys():
            self._db.execute("DELETE FROM meters WHERE space = ? AND meter = ? AND bucket = ?", (*place, bucket))
        return grant

    def _keep(self, space: str, holder: str, hold: Hold, now: float) -> tuple[int, int]:
        """Return the units held from now on, and the number of holders."""
        place = (space, hold.name)
        self._db.execute("DELETE FROM holds WHERE space = ? AND name = ? AND expires_at <= ?", (*place, now))
        others, num_others = self._db.execute(
            "SELECT COALESCE(SUM(units), 0), COUNT(*) FROM holds WHERE space = ? AND name = ? AND holder <> ?",
            (*place, holder),
        ).fetchone()
        free = hold.limit - others
        units = max(min(hold.units, free), 0)
        units += even_share(free - units, hold.spare, 0, num_others + 1)
        mine = (*place, holder, units, now + hold.ttl_s)
        self._db.execute("INSERT OR REPLACE INTO holds VALUES (?, ?, ?, ?, ?)", mine)
        return units, num_others + 1

    def _announce(self, space: str, key: str) -> int:
        """Return the space's next version, written to its feed."""
        (version,) = self._db.execute(
            "INSERT INTO spaces VALUES (?, 1) ON CONFLICT DO UPDATE SET version = version + 1 RETURNING version",
            (space,),
        ).fetchone()
        self._db.execute("INSERT INTO changes VALUES (?, ?, ?)", (space, version, key))
        self._db.execute("DELETE FROM changes WHERE space = ? AND version <= ?", (space, version - MAX_CHANGES))
        return int(version)

    def _space_version(self, space: str) -> int:
        row = self._db.execute("SELECT version FROM spaces WHERE space = ?", (space,)).fetchone()
        return 0 if row is None else int(row[0])

    def _version_of(self, space: str, key: str) -> int:
        entry = self.get(space, key)
        return 0 if entry is None else entry.version


def _by_version(latest: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(latest.items(), key=lambda item: item[1])
