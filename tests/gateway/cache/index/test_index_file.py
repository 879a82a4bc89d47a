"""The index of one process on disk: begun, saved when it changed, found again, and dropped when it is damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gateway.cache.index.index_file import IndexFile
from gateway.cache.index.vector_index import VectorIndex

DIMENSIONS = 8
VECTOR = np.full(DIMENSIONS, DIMENSIONS**-0.5, np.float32)


async def opened(path: Path, *, is_saved: bool = True) -> tuple[IndexFile, VectorIndex, str | None]:
    file = IndexFile(path)
    index, problem = await file.open("encoder", DIMENSIONS, is_saved=is_saved)
    return file, index, problem


async def test_the_next_process_starts_with_what_was_saved(tmp_path: Path) -> None:
    file, index, problem = await opened(tmp_path / "vectors")
    assert (len(index), problem) == (0, None)
    index.add(b"c", b"e", VECTOR)
    await file.save()
    _, again, problem = await opened(tmp_path / "vectors")
    assert (problem, [found.exact for found in again.nearest(b"c", VECTOR)]) == (None, [b"e"])


async def test_only_changes_are_saved(tmp_path: Path) -> None:
    file, index, _ = await opened(tmp_path / "vectors")
    await file.save()
    assert not (tmp_path / "vectors").exists()
    index.add(b"c", b"e", VECTOR)
    await file.save()
    written_at = (tmp_path / "vectors").stat().st_mtime_ns
    await file.save()
    assert (tmp_path / "vectors").stat().st_mtime_ns == written_at


async def test_an_index_that_is_not_saved_has_no_file(tmp_path: Path) -> None:
    file, index, problem = await opened(tmp_path / "vectors", is_saved=False)
    index.add(b"c", b"e", VECTOR)
    await file.save()
    assert problem is None
    assert not (tmp_path / "vectors").exists()


async def test_a_damaged_file_is_reported_and_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "vectors").write_bytes(b"nonsense")
    _, index, problem = await opened(tmp_path / "vectors")
    assert len(index) == 0
    assert problem is not None
    assert "not a snapshot" in problem


async def test_compaction_goes_on_until_nothing_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cache.index.partition.RECENT_ROWS", 4)
    file, index, _ = await opened(tmp_path / "vectors")
    for number in range(200):
        index.add(b"c", b"%d" % number, VECTOR)
    assert index.needs_compaction
    while index.needs_compaction:
        await file.compact()
    assert len(index.segments()) < 9
    assert len(index) == 200
