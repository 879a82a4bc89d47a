"""Files of one model: split files are found by their numbers and must be complete."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.models.gguf.container import GgufError
from engine.models.gguf.parts import GgufModel, find_parts, model_name
from tests.engine.models.gguf.files import close


def write_part(path: Path, *tensor_names: str) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_array("llama.attention.head_count_kv", [2, 2, 2])
    writer.add_array("llama.feed_forward_length", [8, 16, 8])
    for name in tensor_names:
        writer.add_tensor(name, np.ones(4, np.float32))
    return close(writer, path)


def test_all_parts_are_found_from_any(tmp_path: Path) -> None:
    paths = [tmp_path / f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for path in paths:
        path.touch()

    assert find_parts(paths[1]) == paths
    assert model_name(paths[1]) == "m"


def test_a_single_file_is_its_only_part(tmp_path: Path) -> None:
    path = tmp_path / "m-of-2.gguf"
    path.touch()

    assert find_parts(path) == [path]
    assert model_name(path) == "m-of-2"


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00003.gguf"
    path.touch()

    with pytest.raises(GgufError, match=r"m-00002-of-00003\.gguf is missing beside it \(2 of 3 parts are\)"):
        find_parts(path)
    with pytest.raises(GgufError, match="no such file"):
        find_parts(tmp_path / "none.gguf")


@pytest.mark.parametrize("count", ["00000", "99999"])
def test_an_absurd_number_of_parts_is_refused(count: str, tmp_path: Path) -> None:
    path = tmp_path / f"m-00001-of-{count}.gguf"
    path.touch()

    with pytest.raises(GgufError, match="at most 1024 are read"):
        find_parts(path)


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    paths = [write_part(tmp_path / f"{number}.gguf", "x", f"y{number}") for number in range(2)]

    with pytest.raises(GgufError, match=r"1\.gguf: x is in 0\.gguf too"):
        GgufModel(paths)


def test_a_file_without_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match="holds no tensors"):
        GgufModel([write_part(tmp_path / "m.gguf")])


def test_metadata_of_the_wrong_type_is_named(tmp_path: Path) -> None:
    model = GgufModel([write_part(tmp_path / "m.gguf", "x")])

    assert model.integer("llama.block_count") == 3
    assert model.integer("llama.attention.head_count_kv") == 2
    assert model.integer("none", 7) == 7
    with pytest.raises(GgufError, match="feed_forward_length: values that differ between layers"):
        model.integer("llama.feed_forward_length")
    with pytest.raises(GgufError, match="none: expected an integer, got nothing"):
        model.integer("none")
    with pytest.raises(GgufError, match=r"general\.architecture: expected a number, got 'llama'"):
        model.number("general.architecture")
    with pytest.raises(GgufError, match=r"llama\.block_count: expected a string, got 3"):
        model.string("llama.block_count")
    with pytest.raises(GgufError, match=r"llama\.block_count: expected true or false, got 3"):
        model.boolean("llama.block_count", True)
