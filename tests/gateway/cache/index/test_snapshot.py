"""A snapshot is taken whole or not at all."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

from gateway.cache.index.snapshot import SnapshotUnusable, load_vectors, save_vectors
from gateway.cache.index.vector_index import VectorIndex

DIMENSIONS = 8


def filled(**options: int) -> VectorIndex:
    index, rng = VectorIndex(DIMENSIONS, "encoder", **options), np.random.default_rng(1)
    for number in range(120):
        index.add(b"context %d" % (number % 3), b"%d" % number, rng.standard_normal(DIMENSIONS).astype(np.float32))
    while index.compact():
        pass
    return index


@pytest.fixture
def path(tmp_path: Path) -> Path:
    where = tmp_path / "new" / "vectors"
    save_vectors(filled(flat_rows=10), where)
    return where


def test_what_was_saved_is_found_again(path: Path) -> None:
    before, after = filled(flat_rows=10), load_vectors(path, "encoder", DIMENSIONS)
    assert (len(after), after.num_contexts) == (120, 3)
    query = np.ones(DIMENSIONS, np.float32)
    for context in (b"context 0", b"context 1", b"context 2"):
        assert after.nearest(context, query, 5) == before.nearest(context, query, 5)


def test_a_loaded_index_goes_on_growing(path: Path) -> None:
    index = load_vectors(path, "encoder", DIMENSIONS)
    index.remove(b"context 0", b"0")
    index.add(b"context 0", b"0", np.ones(DIMENSIONS, np.float32))
    while index.compact():
        pass
    assert index.nearest(b"context 0", np.ones(DIMENSIONS, np.float32), 1)[0].exact == b"0"
    assert len(index) == 120


def test_a_second_snapshot_takes_the_place_of_the_first(path: Path) -> None:
    save_vectors(VectorIndex(DIMENSIONS, "encoder"), path)
    assert len(load_vectors(path, "encoder", DIMENSIONS)) == 0
    assert list(path.parent.iterdir()) == [path]


def test_snapshots_taken_amid_changes_are_whole(tmp_path: Path) -> None:
    index, path, stop = VectorIndex(DIMENSIONS, "encoder", flat_rows=20), tmp_path / "vectors", Event()

    def change() -> None:
        rng = np.random.default_rng(2)
        while not stop.is_set():
            exact, vector = b"%d" % rng.integers(0, 200), rng.standard_normal(DIMENSIONS).astype(np.float32)
            index.add(b"context", exact, vector)
            index.remove(b"context", b"%d" % rng.integers(0, 200))
            index.compact()

    thread = Thread(target=change)
    thread.start()
    try:
        for _ in range(20):
            save_vectors(index, path)
            loaded = load_vectors(path, "encoder", DIMENSIONS)
            assert sum(segment.num_living for _, segment in loaded.segments()) == len(loaded)
    finally:
        stop.set()
        thread.join(60)


@pytest.mark.parametrize("keep", [0, 5, 19, 40, 0.5, 0.999])
def test_a_truncated_snapshot_is_refused(path: Path, keep: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(SnapshotUnusable, match=str(path)):
        load_vectors(path, "encoder", DIMENSIONS)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.2, 0.6, 0.999])
def test_a_snapshot_with_a_flipped_bit_is_refused(path: Path, share: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * share)] ^= 4
    path.write_bytes(data)
    with pytest.raises(SnapshotUnusable):
        load_vectors(path, "encoder", DIMENSIONS)


def test_a_missing_snapshot_is_stated(tmp_path: Path) -> None:
    with pytest.raises(SnapshotUnusable, match="No such file"):
        load_vectors(tmp_path / "none", "encoder", DIMENSIONS)


@pytest.mark.parametrize(("encoder_id", "dimensions"), [("other", DIMENSIONS), ("encoder", 384)])
def test_vectors_of_another_encoder_are_refused(path: Path, encoder_id: str, dimensions: int) -> None:
    with pytest.raises(SnapshotUnusable, match="it holds vectors of encoder with 8 dimensions"):
        load_vectors(path, encoder_id, dimensions)


def test_a_snapshot_that_cannot_be_written_leaves_the_old_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gateway.util.private_files.os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        save_vectors(VectorIndex(DIMENSIONS, "encoder"), path)
    assert len(load_vectors(path, "encoder", DIMENSIONS)) == 120
    assert list(path.parent.iterdir()) == [path]
