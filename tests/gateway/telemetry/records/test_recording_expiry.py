"""Recordings of a recorder that is switched off are deleted at their age, and no earlier."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.telemetry.records.recording_expiry import RecordingExpiry

HOUR_S = 3600.0


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def segment(folder: Path, began_at: float) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{int(began_at * 1000):015d}-gone.jsonl"
    path.write_text("{}\n")
    return path


def test_files_go_at_their_age_in_every_folder(tmp_path: Path) -> None:
    clock, failures = Clock(), list[OSError]()
    folders = [tmp_path / "recorded", tmp_path / "recorded" / "answers", tmp_path / "missing"]
    older, newer = segment(folders[0], clock.now - 2 * HOUR_S), segment(folders[1], clock.now - HOUR_S / 2)
    salt = folders[0] / "salt"
    salt.write_bytes(b"s")
    expiry = RecordingExpiry(folders, retention_s=HOUR_S, wall=clock, on_failure=failures.append)
    expiry.expire()
    assert (older.exists(), newer.exists()) == (False, True)
    clock.now += HOUR_S
    expiry.expire()
    assert not newer.exists()
    assert salt.exists()
    assert not failures


def test_a_file_that_cannot_be_deleted_is_reported(tmp_path: Path) -> None:
    clock, failures = Clock(), list[OSError]()
    stuck = segment(tmp_path, clock.now - 2 * HOUR_S)
    stuck.unlink()
    stuck.mkdir()  # a folder of that name
    RecordingExpiry([tmp_path], retention_s=HOUR_S, wall=clock, on_failure=failures.append).expire()
    assert [type(error) for error in failures] in ([IsADirectoryError], [PermissionError])


async def test_it_deletes_at_once_and_ends_without_folders(tmp_path: Path) -> None:
    clock = Clock()
    old = segment(tmp_path, clock.now - 2 * HOUR_S)
    failures = list[OSError]()
    running = asyncio.create_task(
        RecordingExpiry([tmp_path], retention_s=HOUR_S, wall=clock, on_failure=failures.append).run()
    )
    async with asyncio.timeout(5.0):
        while old.exists():
            await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await RecordingExpiry([], retention_s=HOUR_S, wall=clock, on_failure=failures.append).run()
    assert not failures
