"""Weights that do not fit the config are refused by name; nothing is loaded by halves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.attention.torch_attention import TorchAttention
from engine.models.config.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.loader import load_model
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.paged import CPU, PagedRunner, Row


def load(directory: Path) -> None:
    load_model(directory, dtype=torch.float32, device=CPU, backend=TorchAttention(CPU))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return save_checkpoint(make_reference("qwen3"), tmp_path)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return save_checkpoint(make_reference("llama2"), tmp_path, max_shard_size="50KB")


def change_weights(directory: Path, changes: dict[str, torch.Tensor | None]) -> None:
    """Replace tensors, or remove those given as None."""
    path = directory / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items() if name not in changes}
    tensors.update({name: tensor for name, tensor in changes.items() if tensor is not None})
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    "name", ["model.norm.weight", "model.layers.1.self_attn.k_norm.weight", "model.layers.2.mlp.up_proj.weight"]
)
def test_a_missing_tensor_is_named(name: str, directory: Path) -> None:
    change_weights(directory, {name: None})

    with pytest.raises(CheckpointError, match=f"missing tensor {name}"):
        load(directory)


def test_a_missing_head_is_an_error_when_embeddings_are_not_tied(tmp_path: Path) -> None:
    directory = save_checkpoint(make_reference("llama2"), tmp_path)
    change_weights(directory, {"lm_head.weight": None})

    with pytest.raises(CheckpointError, match=r"missing tensor lm_head\.weight"):
        load(directory)


def test_unexpected_tensors_are_named_up_to_a_few(directory: Path) -> None:
    change_weights(directory, {f"model.layers.0.extra_{n}": torch.zeros(1) for n in range(7)})

    with pytest.raises(CheckpointError, match=r"unexpected tensors: model\.layers\.0\.extra_0, .* and 2 more"):
        load(directory)


def test_a_wrong_shape_is_named_with_both_shapes(directory: Path) -> None:
    change_weights(directory, {"model.layers.0.mlp.down_proj.weight": torch.zeros(48, 81)})

    with pytest.raises(CheckpointError, match=r"down_proj\.weight: expected shape \[48, 80\], got \[48, 81\]"):
        load(directory)


def test_integer_weights_are_refused(directory: Path) -> None:
    change_weights(directory, {"model.norm.weight": torch.zeros(48, dtype=torch.int8)})

    with pytest.raises(CheckpointError, match=r"model\.norm\.weight: expected floating-point numbers"):
        load(directory)


def test_derived_tables_and_tied_heads_may_be_saved_too(directory: Path) -> None:
    expected = PagedRunner(directory).prefill(Row([1, 2, 3]), [8])
    change_weights(
        directory,
        {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8), "lm_head.weight": torch.zeros(97, 48)},
    )

    assert torch.equal(PagedRunner(directory).prefill(Row([1, 2, 3]), [8]), expected)


def test_weights_are_copied_so_that_the_file_may_change_afterwards(directory: Path) -> None:
    runner = PagedRunner(directory)
    expected = runner.prefill(Row([1, 2, 3]), [8])
    path = directory / "model.safetensors"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2)
        file.write(bytes(size - size // 2))

    assert torch.equal(runner.prefill(Row([1, 2, 3]), [8]), expected)


def test_a_directory_without_safetensors_is_refused(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")

    with pytest.raises(CheckpointError, match="other formats are not read"):
        load(directory)


@pytest.mark.parametrize("content", [b"", b"not a tensor file", (10**15).to_bytes(8, "little") + b"{}"])
def test_a_broken_file_is_named(content: bytes, directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(content)

    with pytest.raises(CheckpointError, match=r"model\.safetensors: is not a readable safetensors file"):
        load(directory)


def test_a_truncated_file_is_named(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])

    with pytest.raises(CheckpointError, match=r"model\.safetensors: is not a readable safetensors file"):
        load(directory)


def test_a_missing_shard_is_named(sharded: Path) -> None:
    shard = min(sharded.glob("model-*.safetensors"))
    shard.unlink()

    with pytest.raises(CheckpointError, match=f"names {shard.name}, which is not there"):
        load(sharded)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "\ud800", "é" * 200])
def test_a_shard_whose_name_no_file_can_have_is_not_there(name: str, sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": f"{name}.safetensors"}}))

    with pytest.raises(CheckpointError, match="which is not there") as refusal:
        load(sharded)
    assert len(str(refusal.value)) < 600


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "weights.bin", ""])
def test_an_index_cannot_point_elsewhere(name: str, sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.norm.weight"] = name
    index.write_text(json.dumps(content))

    with pytest.raises(CheckpointError, match="is not the name of a safetensors file beside it"):
        load(sharded)


@pytest.mark.parametrize("content", ["{}", "[]", '{"weight_map": []}', "{"])
def test_a_broken_index_is_named(content: str, sharded: Path) -> None:
    (sharded / "model.safetensors.index.json").write_text(content)

    with pytest.raises(CheckpointError, match=r"model\.safetensors\.index\.json"):
        load(sharded)


def test_the_same_tensor_in_two_shards_is_refused(sharded: Path) -> None:
    first, second = sorted(sharded.glob("model-*.safetensors"))[:2]
    tensors = load_file(second)
    name, tensor = next(iter(load_file(first).items()))
    save_file({**tensors, name: tensor}, second, metadata={"format": "pt"})

    with pytest.raises(CheckpointError, match=f"{name} is in both {first.name} and {second.name}"):
        Checkpoint(sharded)


def test_specs_state_what_each_layer_needs(tmp_path: Path) -> None:
    directory = save_checkpoint(make_reference("qwen2_windowed"), tmp_path)
    model = PagedRunner(directory).model

    assert [spec.sliding_window for spec in model.attention_specs] == [None, 20, 20]
    assert {(s.num_heads, s.num_kv_heads, s.head_dim, s.scale) for s in model.attention_specs} == {(6, 3, 8, 8**-0.5)}
