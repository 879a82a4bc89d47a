"""One SQLite file as a store: versions, expiry, transactions, and files that are not ours."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.store.base import StoreLoss, StoreUnavailable
from gateway.store.meter import Draw, Meter, Period
from gateway.store.sqlite_file import SCHEMA_VERSION, SqliteFile, loss_of

METER = Meter("requests_per_min", Period.MINUTE, 10)


class Opened:
    """An open file and its clock."""

    def __init__(self, path: Path) -> None:
        self.now = 1000.0
        self.file = SqliteFile(path, lambda: self.now)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    found = Opened(tmp_path / "store.sqlite3")
    yield found
    found.file.close()


def test_only_this_user_may_read_it_and_it_is_the_same_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    first = Opened(path)
    first.file.put("s", "k", b"v", ttl_s=None, expect=None)
    first.file.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    second = Opened(path)
    entry = second.file.get("s", "k")
    assert entry is not None
    assert (entry.value, entry.version) == (b"v", 1)
    second.file.close()


def test_a_write_that_expects_another_version_does_nothing(opened: Opened) -> None:
    file = opened.file
    assert file.put("s", "k", b"1", ttl_s=None, expect=0) == 1
    assert file.put("s", "k", b"2", ttl_s=None, expect=0) is None
    assert file.delete("s", "k", expect=5) is False
    assert file.put("s", "k", b"2", ttl_s=None, expect=1) == 2
    assert file.delete("s", "k", expect=2) is True
    assert file.delete("s", "k", expect=None) is False


def test_what_is_past_its_time_is_gone_and_its_key_is_free(opened: Opened) -> None:
    opened.file.put("s", "k", b"1", ttl_s=5.0, expect=None)
    opened.now += 5.0
    assert opened.file.get("s", "k") is None
    assert opened.file.keys("s", after="", limit=10) == ()
    assert opened.file.put("s", "k", b"2", ttl_s=None, expect=0) is not None


def test_what_is_rolled_back_was_never_there(opened: Opened) -> None:
    opened.file.begin()
    opened.file.put("s", "k", b"1", ttl_s=None, expect=None)
    opened.file.append("s", "log", b"line", after=None)
    opened.file.roll_back()
    opened.file.roll_back()
    assert opened.file.get("s", "k") is None
    assert opened.file.read_log("s", "log", after=0, limit=10) == ()


def test_of_a_key_that_changed_often_only_the_last_change_is_reported(opened: Opened) -> None:
    start = opened.file.changes("s", after=None, limit=100).cursor
    for value in (b"1", b"2"):
        opened.file.put("s", "k", value, ttl_s=None, expect=None)
    opened.file.put("s", "other", b"3", ttl_s=None, expect=None)
    feed = opened.file.changes("s", after=start, limit=100)
    assert [(change.key, change.version) for change in feed.changes] == [("k", 2), ("other", 3)]
    assert (feed.cursor, feed.is_gap) == (3, False)
    assert opened.file.changes("s", after=99, limit=100).is_gap, "of another file's life"


def test_units_are_counted_once_over_holders(opened: Opened) -> None:
    first = opened.file.exchange("q", "a", [Draw(METER, want=7, at_least=7)], None)
    second = opened.file.exchange("q", "b", [Draw(METER, want=7, at_least=7)], None)
    assert (first.grants[0].units, second.grants[0].units) == (7, 0)
    opened.now += 62.0
    later = opened.file.exchange("q", "b", [Draw(METER, want=7, at_least=7)], None)
    assert later.grants[0].units == 7


def test_a_file_of_another_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    Opened(path).file.close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.close()
    with pytest.raises(StoreUnavailable, match="written by another version") as caught:
        Opened(path)
    assert caught.value.reason is StoreLoss.REFUSED


def test_a_file_that_is_no_database_is_damaged_and_a_folder_is_down(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    path.write_bytes(b"this is no database at all, and long enough to be read as one" * 40)
    with pytest.raises(StoreUnavailable) as damaged:
        Opened(path)
    assert damaged.value.reason is StoreLoss.CORRUPT
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreUnavailable) as down:
        Opened(tmp_path / "folder")
    assert down.value.reason is StoreLoss.DOWN


def test_an_error_without_a_code_is_a_store_that_is_down() -> None:
    assert loss_of(sqlite3.OperationalError("x")) is StoreLoss.DOWN
