"""The embedded store when its file is shared, damaged, full or out of reach."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.store.base import Hold, StoreEntry, StoreLoss, StoreUnavailable
from gateway.store.embedded import EmbeddedStore
from gateway.store.meter import Draw, Meter, Period

METER = Meter("requests", Period.MINUTE, 300)


def damaged_in(folder: Path) -> list[Path]:
    return list(folder.glob("store.sqlite3.damaged-*"))


async def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    for version in (1, 2):
        store = EmbeddedStore(tmp_path / "deep" / "store.sqlite3", wall=time.time)
        assert await store.put("s", "k", b"%d" % version) == version
        await store.aclose()


async def test_two_processes_share_one_file_exactly(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    script = (
        "import asyncio, sys, time; from pathlib import Path\n"
        "from gateway.store.embedded import EmbeddedStore\n"
        "from gateway.store.meter import Draw, Meter, Period\n"
        "async def main():\n"
        "    store, got = EmbeddedStore(Path(sys.argv[1]), wall=time.time), 0\n"
        "    for _ in range(100):\n"
        "        draw = Draw(Meter('requests', Period.MINUTE, 300), 2, 1)\n"
        "        got += (await store.exchange('s', sys.argv[2], [draw])).grants[0].units\n"
        "    await store.aclose(); print(got)\n"
        "asyncio.run(main())"
    )
    store = EmbeddedStore(path, wall=time.time)
    await store.ping()
    arguments = [(sys.executable, "-c", script, str(path), name) for name in "ab"]
    children = [await asyncio.create_subprocess_exec(*each, stdout=subprocess.PIPE) for each in arguments]
    outputs = await asyncio.gather(*(child.communicate() for child in children))
    assert sum(int(out) for out, _ in outputs) == 300
    assert (await store.exchange("s", "c", [Draw(METER, 1, 1)])).grants[0].units == 0
    await store.aclose()


@pytest.mark.parametrize("damage", [b"not a database at all" * 400, b"SQLite format 3\0" + bytes(range(256)) * 64])
async def test_a_damaged_file_is_put_aside_and_the_store_begins_anew(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "store.sqlite3"
    notified: list[str] = []
    path.write_bytes(damage)
    store = EmbeddedStore(path, wall=time.time, on_damage=notified.append)
    with pytest.raises(StoreUnavailable) as lost:
        await store.get("s", "k")
    assert lost.value.reason is StoreLoss.CORRUPT
    assert await store.put("s", "k", b"v") == 1
    await store.aclose()
    (aside,) = damaged_in(tmp_path)
    assert aside.read_bytes() == damage
    assert "begins anew" in notified[0]


async def test_damage_that_shows_later_is_handled_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    store = EmbeddedStore(path, wall=time.time)
    for index in range(200):
        await store.put("s", f"k{index}", bytes(2000))
    await store.aclose()
    content = bytearray(path.read_bytes())
    content[4096 * 3 :] = b"\xa5" * len(content[4096 * 3 :])
    path.write_bytes(content)
    store = EmbeddedStore(path, wall=time.time)
    with pytest.raises(StoreUnavailable, match="corrupt"):
        await store.keys("s")
    assert await store.keys("s") == ()
    await store.aclose()


async def test_a_full_disk_loses_the_write_and_nothing_else(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store.sqlite3", wall=time.time)
    await store.put("s", "small", b"kept")
    await store._do(lambda file: file._db.execute("PRAGMA max_page_count = 30"))
    with pytest.raises(StoreUnavailable) as lost:
        await store.put("s", "large", bytes(1 << 20))
    assert lost.value.reason is StoreLoss.FULL
    assert await store.get("s", "small") == StoreEntry(b"kept", 1)
    assert await store.get("s", "large") is None
    await store.aclose()


async def test_a_place_that_cannot_be_written_is_a_store_that_is_down(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = EmbeddedStore(tmp_path / "file" / "store.sqlite3", wall=time.time)
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as lost:
            await store.ping()
        assert (lost.value.reason, lost.value.was_sent) == (StoreLoss.DOWN, False)
    (tmp_path / "file").unlink()
    await store.ping()
    await store.aclose()


async def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    store = EmbeddedStore(path, wall=time.time)
    with pytest.raises(StoreUnavailable, match="another version"):
        await store.ping()
    await store.aclose()
    assert damaged_in(tmp_path) == []


async def test_a_file_that_another_process_keeps_locked_is_slow_not_fatal(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    store = EmbeddedStore(path, wall=time.time)
    await store.ping()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as lost:
        await store.ping()
    assert lost.value.reason is StoreLoss.SLOW
    other.execute("ROLLBACK")
    other.close()
    await store.ping()
    await store.aclose()


async def test_who_stops_waiting_does_not_disturb_the_others(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store.sqlite3", wall=time.time)
    tasks = [asyncio.create_task(store.put("s", f"k{i}", b"%d" % i)) for i in range(60)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for index in range(60):
        found = await store.get("s", f"k{index}")
        assert found is not None
        assert found.value == b"%d" % index
    await store.aclose()


async def test_nothing_is_done_after_it_was_closed(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store.sqlite3", wall=time.time)
    await store.exchange("s", "a", [], Hold("h", 1, 1, 1.0))
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.ping()


async def test_an_operation_that_fails_by_a_fault_of_its_own_fails_alone(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store.sqlite3", wall=time.time)
    await store.ping()
    results = await asyncio.gather(
        store.put("s", "before", b"1"),
        store.put("s", "wrong", b"2", ttl_s="soon"),  # type: ignore[arg-type]
        store.put("s", "after", b"3"),
        store.exchange("s", "a", [Draw(METER, 1, 1)]),
        return_exceptions=True,
    )
    assert [type(result) for result in results[:3]] == [int, TypeError, int]
    assert await store.keys("s") == ("after", "before")
    assert (await store.exchange("s", "a", [Draw(METER, 1, 1)])).grants[0].remaining == 298
    await store.aclose()
