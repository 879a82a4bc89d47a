"""Sizes that a checkpoint only declares: refused by name, at once, and before anything is made of such a size."""

from __future__ import annotations

import json
import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.attention.torch_attention import TorchAttention
from engine.config import EngineConfigError
from engine.models.config.checkpoint import Checkpoint, CheckpointError
from engine.models.config.config_reader import MAX_LAYERS, MAX_SIZE
from engine.models.families.registry import read_model_config
from engine.models.loading.loader import load_model
from engine.models.loading.sizes import read_checked_config
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.paged import CPU

REFUSED_IN_S = 1.0
MAX_GROWTH_KB = 64 * 1024
HUGE = 10**12


def load(directory: Path) -> None:
    load_model(directory, dtype=torch.float32, device=CPU, backend=TorchAttention(CPU))


def refuse_cheaply(read: Callable[[Path], object], directory: Path, match: str) -> None:
    before_kb, began_at = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(EngineConfigError, match=match):
        read(directory)
    assert time.monotonic() - began_at < REFUSED_IN_S
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < MAX_GROWTH_KB


def declare(directory: Path, **sizes: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **sizes}))


@pytest.fixture(params=["qwen3", "llama2", "mixtral", "qwen3_moe", "gemma2", "phi3"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    found = save_checkpoint(make_reference(request.param), tmp_path)
    load(found)  # whatever torch loads lazily is there
    return found


@pytest.mark.parametrize(
    "name", ["vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "max_position_embeddings"]
)
@pytest.mark.parametrize("read", [read_model_config, load])
def test_a_size_beyond_any_model_is_refused(read: Callable[[Path], object], name: str, directory: Path) -> None:
    declare(directory, **{name: HUGE})
    refuse_cheaply(read, directory, f"{name}: expected at most {MAX_SIZE}, got {HUGE}")


def test_more_layers_than_any_model_has_are_refused(directory: Path) -> None:
    declare(directory, num_hidden_layers=MAX_LAYERS + 1, layer_types=None)
    refuse_cheaply(read_model_config, directory, f"num_hidden_layers: expected at most {MAX_LAYERS}")


@pytest.mark.parametrize("size", [98, 2**31 - 1])
def test_a_vocabulary_that_the_embedding_does_not_have_is_refused_before_it_is_made(size: int, directory: Path) -> None:
    declare(directory, vocab_size=size)
    for read in (read_checked_config, load):
        refuse_cheaply(read, directory, rf"model\.embed_tokens\.weight: expected shape \[{size}, 48\], got \[97, 48\]")


def test_layers_that_the_files_do_not_have_are_refused(directory: Path) -> None:
    declare(directory, num_hidden_layers=MAX_LAYERS, layer_types=None)
    refuse_cheaply(read_checked_config, directory, rf"no tensor model\.layers\.{MAX_LAYERS - 1}\.\*")


@pytest.mark.parametrize(
    ("name", "size"), [("intermediate_size", 2**31 - 1), ("num_attention_heads", 2**30), ("head_dim", 2**30)]
)
def test_projections_of_another_size_are_refused_before_they_are_made(name: str, size: int, directory: Path) -> None:
    declare(directory, **{name: size})
    refuse_cheaply(load, directory, "expected shape|does not divide|expected .* factors|missing tensor")


def test_what_fits_passes(directory: Path) -> None:
    assert read_checked_config(directory) == read_model_config(directory)


def test_a_number_of_thousands_of_digits_is_no_json_of_ours(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "vocab_size": ' + "9" * 5000 + "}")
    refuse_cheaply(read_model_config, tmp_path, "is not valid JSON")


def header(**tensors: tuple[list[int], list[int]]) -> bytes:
    """A safetensors header: by name, shape and offsets."""
    fields = {name: {"dtype": "F32", "shape": shape, "data_offsets": span} for name, (shape, span) in tensors.items()}
    encoded = json.dumps(fields).encode()
    return struct.pack("<Q", len(encoded)) + encoded


BROKEN_FILES = {
    "a header longer than the file": struct.pack("<Q", 2**62) + b"{}",
    "a header that is cut short": struct.pack("<Q", 4096) + b"{",
    "an empty file": b"",
    "data beyond the file": header(weight=([HUGE], [0, 4 * HUGE])) + bytes(16),
    "a shape that overflows": header(weight=([2**40, 2**40], [0, 16])) + bytes(16),
    "a shape larger than its data": header(weight=([1024], [0, 16])) + bytes(16),
    "tensors that overlap": header(one=([4], [0, 16]), other=([4], [8, 24])) + bytes(24),
    "a gap between tensors": header(one=([4], [0, 16]), other=([4], [32, 48])) + bytes(48),
    "offsets that run backwards": header(weight=([4], [16, 0])) + bytes(16),
}


@pytest.mark.parametrize("content", BROKEN_FILES.values(), ids=BROKEN_FILES.keys())
def test_a_file_whose_header_lies_is_refused(content: bytes, tmp_path: Path) -> None:
    """Bad input row 56."""
    (tmp_path / "model.safetensors").write_bytes(content)
    refuse_cheaply(Checkpoint, tmp_path, "is not a readable safetensors file")


def test_a_tensor_that_is_there_is_compared_without_being_read(directory: Path) -> None:
    checkpoint = Checkpoint(directory)
    checkpoint.require("model.norm.weight", (48,))
    with pytest.raises(CheckpointError, match=r"missing tensor no\.such"):
        checkpoint.require("no.such", (1,))
    assert checkpoint.has("model.norm.weight")
