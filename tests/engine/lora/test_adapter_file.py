"""Broken files and adapters of other models get a clear error from their headers alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.lora.adapter_config import AdapterError
from engine.lora.adapter_file import AdapterFile
from engine.lora.projections import adapted_projections
from engine.models.config.config import ModelConfig
from engine.models.families.registry import read_model_config
from tests.engine.lora.adapters import write_adapter
from tests.engine.models.checkpoints import make_reference, save_checkpoint

Tensors = dict[str, torch.Tensor]
PREFIX = "base_model.model.model.layers"
Q_A, Q_B = (f"{PREFIX}.0.self_attn.q_proj.lora_{matrix}.weight" for matrix in "AB")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    return read_model_config(save_checkpoint(make_reference("llama3"), tmp_path_factory.mktemp("base")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_adapter(tmp_path / "adapter", make_reference("llama3"))
    return tmp_path / "adapter"


def test_reads_the_modules_that_the_file_has(tmp_path: Path, model: ModelConfig) -> None:
    write_adapter(tmp_path, make_reference("llama3"), modules=("self_attn.v_proj", "mlp.down_proj"))
    file = AdapterFile(tmp_path, model, 8)
    found = {
        projection.name: [part.module.name for part in file.weights(1, projection)]
        for projection in adapted_projections(model, 1)
    }
    assert found == {"qkv": ["self_attn.v_proj"], "output": [], "gate_up": [], "down": ["mlp.down_proj"]}


def test_two_adapters_differ_in_their_digest_and_a_copy_does_not(tmp_path: Path, model: ModelConfig) -> None:
    made: dict[str, dict[str, Any]] = {
        "one": {"seed": 1},
        "copy": {"seed": 1},
        "other": {"seed": 2},
        "scaled": {"seed": 1, "lora_alpha": 32},
    }
    for name, options in made.items():
        write_adapter(tmp_path / name, make_reference("llama3"), **options)
    digests = {name: AdapterFile(tmp_path / name, model, 8).digest() for name in made}
    assert digests["one"] == digests["copy"]
    assert len({*digests.values()}) == 3


def _without(name: str) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.pop(name)


def _with(name: str, tensor: torch.Tensor) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({name: tensor})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without(Q_B), rf"{Q_A}: its counterpart is missing"),
        (_with(Q_A, torch.zeros(4, 47)), rf"{Q_A}: expected shape \[4, 48\], got \[4, 47\]; .* another model"),
        (_with(Q_B, torch.zeros(47, 4)), rf"{Q_B}: expected shape \[48, 4\]"),
        (_with(Q_B, torch.zeros(4)), rf"{Q_B}: expected shape"),
        (_with(Q_A, torch.zeros(4, 48, dtype=torch.int8)), rf"{Q_A}: expected one of F32, BF16, F16, got I8"),
        (_with(f"{PREFIX}.3.self_attn.q_proj.lora_A.weight", torch.zeros(4, 48)), "the model has 3 layers"),
        (_with(f"{PREFIX}.0.mlp.router.lora_A.weight", torch.zeros(4, 48)), "attention and dense MLP projections only"),
        (_with("base_model.model.lm_head.lora_A.weight", torch.zeros(4, 48)), "lm_head.*projections only"),
        (_with(f"{PREFIX}.0.self_attn.q_proj.lora_magnitude_vector", torch.zeros(48)), "magnitude_vector.*only"),
        (_with("x" * 5000, torch.zeros(1)), "x{128}: adapters"),
        (lambda tensors: tensors.clear(), "has no tensors"),
        (
            lambda tensors: [tensors.pop(name) for name in list(tensors) if ".layers.2." in name],
            "weights for 2 layers of 3; .*another model",
        ),
    ],
)
def test_names_the_tensor_at_fault(
    change: Callable[[Tensors], object], message: str, folder: Path, model: ModelConfig
) -> None:
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    with pytest.raises(AdapterError, match=message):
        AdapterFile(folder, model, 8)


def test_some_layers_alone_are_read_where_the_configuration_lists_them(folder: Path, model: ModelConfig) -> None:
    path = folder / "adapter_model.safetensors"
    save_file({name: tensor for name, tensor in load_file(path).items() if ".layers.1." in name}, path)
    config = folder / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"layers_to_transform": [1]}))
    file = AdapterFile(folder, model, 8)
    assert [bool(file.weights(layer, adapted_projections(model, layer)[0])) for layer in range(3)] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("num_bytes", [0, 4, 100, 1000, 20_000])
def test_a_truncated_file_is_refused(num_bytes: int, folder: Path, model: ModelConfig) -> None:
    os.truncate(folder / "adapter_model.safetensors", num_bytes)
    with pytest.raises(AdapterError, match="is not a readable safetensors file"):
        AdapterFile(folder, model, 8)


def test_a_header_with_sizes_beyond_the_file_is_refused(folder: Path, model: ModelConfig) -> None:
    header = json.dumps({Q_A: {"dtype": "F32", "shape": [4, 1 << 40], "data_offsets": [0, 1 << 44]}}).encode()
    (folder / "adapter_model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(AdapterError, match="is not a readable safetensors file"):
        AdapterFile(folder, model, 8)


def test_a_pipe_or_a_pickle_in_place_of_the_file_is_refused(folder: Path, model: ModelConfig) -> None:
    path = folder / "adapter_model.safetensors"
    path.rename(folder / "adapter_model.bin")
    with pytest.raises(AdapterError, match="no such file; adapters are read from safetensors only"):
        AdapterFile(folder, model, 8)
    os.mkfifo(path)
    with pytest.raises(AdapterError, match="no such file"):
        AdapterFile(folder, model, 8)


def test_numbers_that_are_not_finite_are_refused(folder: Path, model: ModelConfig) -> None:
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    tensors[Q_B][0, 0] = float("inf")
    save_file(tensors, path)
    with pytest.raises(AdapterError, match=f"{Q_B}: has a number that is not finite"):
        AdapterFile(folder, model, 8).weights(0, adapted_projections(model, 0)[0])


def test_a_scale_that_makes_a_weight_overflow_is_refused(folder: Path, model: ModelConfig) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "lora_alpha": 3e38}))
    weights = load_file(folder / "adapter_model.safetensors")
    weights[Q_B][0, 0] = 100.0
    save_file(weights, folder / "adapter_model.safetensors")
    with pytest.raises(AdapterError, match=rf"{Q_B}: overflows with lora_alpha"):
        AdapterFile(folder, model, 8).weights(0, adapted_projections(model, 0)[0])


def test_an_adapter_of_a_narrower_model_is_refused(folder: Path, model: ModelConfig) -> None:
    with pytest.raises(AdapterError, match="another model"):
        AdapterFile(folder, replace(model, hidden_size=64), 8)
