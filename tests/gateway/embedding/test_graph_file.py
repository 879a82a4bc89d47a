"""A graph is made once, and made anew when its file is damaged."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier, Thread

import pytest

from gateway.embedding.graph_file import GraphFile


def test_a_made_graph_is_found_again(tmp_path: Path) -> None:
    path = GraphFile(tmp_path / "new", "model-int8").make(lambda: b"graph")
    assert path.read_bytes() == b"graph"
    assert GraphFile(tmp_path / "new", "model-int8").find() == path


def test_there_is_none_before_it_is_made(tmp_path: Path) -> None:
    GraphFile(tmp_path, "model-int8").make(lambda: b"graph")
    assert GraphFile(tmp_path, "model-fp32").find() is None
    assert GraphFile(tmp_path / "nowhere", "model-int8").find() is None


@pytest.mark.parametrize("damage", [b"", b"grap", b"graqh", b"graph "])
def test_a_damaged_graph_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    file = GraphFile(tmp_path, "model-int8")
    file.make(lambda: b"graph").write_bytes(damage)
    assert file.find() is None
    assert file.make(lambda: b"graph").read_bytes() == b"graph"
    assert file.find() is not None


def test_what_was_left_half_written_goes(tmp_path: Path) -> None:
    (tmp_path / "model-int8.0123.onnx-part").write_bytes(b"gra")
    GraphFile(tmp_path, "model-int8").make(lambda: b"graph")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".lock", ".onnx"]


def test_a_failing_build_leaves_nothing_that_could_be_taken_for_a_graph(tmp_path: Path) -> None:
    def fail() -> bytes:
        raise OSError("no space")

    file = GraphFile(tmp_path, "model-int8")
    with pytest.raises(OSError, match="no space"):
        file.make(fail)
    assert file.find() is None


def test_of_many_at_once_one_makes_it(tmp_path: Path) -> None:
    made: list[int] = []
    barrier = Barrier(4)

    def make(number: int) -> None:
        def build() -> bytes:
            made.append(number)
            return b"graph"

        barrier.wait(30)
        GraphFile(tmp_path, "model-int8").make(build)

    threads = [Thread(target=make, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(made) == 1
