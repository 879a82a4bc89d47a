"""The copy of keys and admins on disk: complete, private, and never in the way."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from gateway.access.local_copy import KEYS_FILE, AccessCopy, SavedAccess, saved_of
from tests.gateway.access.test_records import ADMIN, KEY, TOKEN


def test_all_records_come_back_with_the_mark_of_their_store(tmp_path: Path) -> None:
    copy = AccessCopy(tmp_path / KEYS_FILE)
    copy.write(saved_of([TOKEN, KEY, ADMIN], "store-7"))
    found = copy.read()
    assert found == SavedAccess(origin="store-7", keys=[KEY], admins=[ADMIN], tokens=[TOKEN])
    assert found.records == [KEY, ADMIN, TOKEN]


def test_only_this_user_may_read_it(tmp_path: Path) -> None:
    copy = AccessCopy(tmp_path / KEYS_FILE)
    copy.write(saved_of([KEY], None))
    assert stat.S_IMODE(copy.path.stat().st_mode) == 0o600


def test_an_older_copy_of_keys_alone_is_read(tmp_path: Path) -> None:
    copy = AccessCopy(tmp_path / KEYS_FILE)
    copy.path.write_bytes(msgspec.json.encode([KEY]))
    assert copy.read() == SavedAccess(keys=[KEY])


@pytest.mark.parametrize("content", [b"", b"{", b'{"keys": 3}', b"\xff\xff"])
def test_a_damaged_copy_is_none(tmp_path: Path, content: bytes) -> None:
    copy = AccessCopy(tmp_path / KEYS_FILE)
    assert copy.read() is None
    copy.path.write_bytes(content)
    assert copy.read() is None


def test_a_copy_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    AccessCopy(tmp_path / "file" / KEYS_FILE).write(saved_of([KEY], None))
    assert AccessCopy(tmp_path / "file" / KEYS_FILE).read() is None
