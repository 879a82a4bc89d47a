"""Files of a checkpoint: broken and missing ones are named, and none outside its folder is read."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from engine.models.config.checkpoint import Checkpoint, CheckpointError
from tests.engine.models.checkpoints import make_reference, save_checkpoint


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return save_checkpoint(make_reference("qwen3"), tmp_path)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return save_checkpoint(make_reference("llama2"), tmp_path, max_shard_size="50KB")


def test_a_directory_without_safetensors_is_refused(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")

    with pytest.raises(CheckpointError, match="other formats are not read"):
        Checkpoint(directory)


@pytest.mark.parametrize("content", [b"", b"not a tensor file", (10**15).to_bytes(8, "little") + b"{}"])
def test_a_broken_file_is_named(content: bytes, directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(content)

    with pytest.raises(CheckpointError, match=r"model\.safetensors: is not a readable safetensors file"):
        Checkpoint(directory)


def test_a_truncated_file_is_named(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])

    with pytest.raises(CheckpointError, match=r"model\.safetensors: is not a readable safetensors file"):
        Checkpoint(directory)


def test_a_missing_shard_is_named(sharded: Path) -> None:
    shard = min(sharded.glob("model-*.safetensors"))
    shard.unlink()

    with pytest.raises(CheckpointError, match=f"names {shard.name}, which is not there"):
        Checkpoint(sharded)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "\ud800", "é" * 200])
def test_a_shard_whose_name_no_file_can_have_is_not_there(name: str, sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": f"{name}.safetensors"}}))

    with pytest.raises(CheckpointError, match="which is not there") as refusal:
        Checkpoint(sharded)
    assert len(str(refusal.value)) < 600


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "weights.bin", ""])
def test_an_index_cannot_point_elsewhere(name: str, sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.norm.weight"] = name
    index.write_text(json.dumps(content))

    with pytest.raises(CheckpointError, match="is not the name of a safetensors file beside it"):
        Checkpoint(sharded)


@pytest.mark.parametrize("content", ["{}", "[]", '{"weight_map": []}', "{"])
def test_a_broken_index_is_named(content: str, sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").write_text(content)

    with pytest.raises(CheckpointError, match=r"model\.safetensors\.index\.json"):
        Checkpoint(sharded)


def test_the_same_tensor_in_two_shards_is_refused(sharded: Path) -> None:
    first, second = sorted(sharded.glob("model-*.safetensors"))[:2]
    tensors = load_file(second)
    name, tensor = next(iter(load_file(first).items()))
    save_file({**tensors, name: tensor}, second, metadata={"format": "pt"})

    with pytest.raises(CheckpointError, match=f"{name} is in both {first.name} and {second.name}"):
        Checkpoint(sharded)


def test_each_tensor_is_taken_once_in_its_shape(directory: Path) -> None:
    checkpoint, name = Checkpoint(directory), "model.norm.weight"
    checkpoint.require(name, (48,))
    with pytest.raises(CheckpointError, match=r"expected shape \[47\], got \[48\]"):
        checkpoint.require(name, (47,))
    assert checkpoint.take(name, (48,)).shape == (48,)
    assert not checkpoint.has(name)
    with pytest.raises(CheckpointError, match=f"missing tensor {name}"):
        checkpoint.take(name, (48,))


def test_what_is_discarded_needs_no_reader(directory: Path) -> None:
    checkpoint = Checkpoint(directory)
    while (name := checkpoint.first_with("")) is not None:
        checkpoint.discard(name)
    checkpoint.discard("never there")
    checkpoint.check_all_taken()


def header_of(tensors: dict[str, object], data: bytes = bytes(64)) -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


BAD_HEADERS: dict[str, dict[str, Any]] = {
    "overlap": {"x": entry("F32", [8], 0, 32), "y": entry("F32", [8], 16, 48)},
    "gap": {"x": entry("F32", [8], 32, 64)},
    "data past the end": {"x": entry("F32", [1 << 40], 0, 4 << 40)},
    "overflowing shape": {"x": entry("F32", [1 << 62, 1 << 62], 0, 64)},
    "shape of another size": {"x": entry("F32", [3], 0, 64)},
    "unknown type": {"x": entry("F31", [16], 0, 64)},
    "negative size": {"x": entry("F32", [-16], 0, 64)},
    "no object": {"x": [1, 2]},
}


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_a_header_that_does_not_fit_the_file_is_refused_at_once(case: str, directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(header_of(dict(BAD_HEADERS[case])))
    started_at = time.process_time()

    with pytest.raises(CheckpointError, match=r"model\.safetensors: is not a readable safetensors file"):
        Checkpoint(directory)

    assert time.process_time() - started_at < 1


def test_a_huge_header_is_refused_at_once(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes((90 << 20).to_bytes(8, "little"))
    os.truncate(path, 1 << 30)
    started_at = time.process_time()

    with pytest.raises(CheckpointError, match="has a header of 94371840 bytes; at most 33554432 are read"):
        Checkpoint(directory)

    assert time.process_time() - started_at < 1


def test_integers_in_place_of_weights_are_refused(directory: Path) -> None:
    tensors = load_file(directory / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].int()
    save_file(tensors, directory / "model.safetensors")

    with pytest.raises(
        CheckpointError, match=r"model\.norm\.weight: expected floating-point numbers, got torch\.int32"
    ):
        Checkpoint(directory).take("model.norm.weight", (48,))
