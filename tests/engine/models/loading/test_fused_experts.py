"""Tensors with the projections of all experts: MXFP4 gives the model of its dequantized weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.cpu.execution.model import CompiledModel
from engine.models.config.checkpoint import CheckpointError
from engine.models.config.config_reader import ModelConfigError
from engine.models.families.registry import read_model_config
from engine.tensor_parallel.shard import part_of_config
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.paged import PagedRunner, Row
from tests.engine.quantization.test_compressed_tensors import mxfp4

SIZES = {"hidden_size": 64, "intermediate_size": 96}
PROMPT = [3, 14, 15, 92, 65, 35]
Tensors = dict[str, torch.Tensor]


def write_pair(folder: Path) -> tuple[Path, Path]:
    """A checkpoint with MXFP4 experts, and the plain one of the numbers they stand for."""
    plain, quantized = folder / "plain", folder / "quantized"
    for target in (plain, quantized):
        save_checkpoint(make_reference("gpt_oss", **SIZES), target)
    tensors = load_file(plain / "model.safetensors")
    others = {name: tensor.clone() for name, tensor in tensors.items()}
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        found = [mxfp4(weight) for weight in others.pop(name).transpose(1, 2).contiguous()]
        codes = torch.stack([parts["weight_packed"] for parts, _ in found])
        others[f"{name}_blocks"] = codes.unflatten(2, (-1, 16))  # type: ignore[no-untyped-call]
        others[f"{name}_scales"] = torch.stack([parts["weight_scale"] for parts, _ in found])
        tensors[name] = torch.stack([restored.t() for _, restored in found])
    save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
    save_file(others, quantized / "model.safetensors", metadata={"format": "pt"})
    path = quantized / "config.json"
    config = {**json.loads(path.read_text()), "quantization_config": {"quant_method": "mxfp4"}}
    path.write_text(json.dumps(config))
    return quantized, plain


def test_mxfp4_experts_are_the_model_of_their_dequantized_weights(tmp_path: Path) -> None:
    quantized, plain = write_pair(tmp_path)

    result = PagedRunner(quantized).prefill(Row(list(PROMPT)), [4, 1])
    expected = PagedRunner(plain).prefill(Row(list(PROMPT)), [4, 1])

    assert float((result - expected).norm() / expected.norm()) < 0.02


def test_compiled_steps_keep_mxfp4_experts_as_codes(tmp_path: Path) -> None:
    quantized, plain = write_pair(tmp_path)
    compiled = PagedRunner(quantized, compiled_threads=1)
    assert isinstance(compiled.model, CompiledModel)

    result = compiled.prefill(Row(list(PROMPT)), [4, 1])
    expected = PagedRunner(plain).prefill(Row(list(PROMPT)), [4, 1])

    num_codes = sum(count for kind, count in compiled.model.products.items() if kind.startswith("int8 in groups"))
    assert num_codes == 2 * 3 * 5, "two of each of five experts in three layers"
    # The codes are exact; inputs are rounded to int8.
    assert float((result - expected).norm() / expected.norm()) < 0.05


MLP = "model.layers.1.mlp.experts"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t.pop(f"{MLP}.down_proj_bias"), rf"missing tensor {MLP}\.down_proj_bias"),
        (lambda t: t.pop(f"{MLP}.down_proj_scales"), rf"missing tensor {MLP}\.down_proj_scales"),
        (lambda t: t.update({f"{MLP}.down_proj_blocks": torch.zeros(5, 64, 3, 16)}), "expected uint8 numbers"),
        (lambda t: t.update({f"{MLP}.gate_up_proj_blocks": torch.zeros(5, 8, dtype=torch.uint8)}), "expected shape"),
    ],
)
def test_missing_and_misshapen_parts_are_named(change: Callable[[Tensors], object], named: str, tmp_path: Path) -> None:
    quantized, _ = write_pair(tmp_path)
    tensors = load_file(quantized / "model.safetensors")
    change(tensors)
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, quantized / "model.safetensors")

    with pytest.raises(CheckpointError, match=named):
        PagedRunner(quantized)


def test_a_group_of_processes_is_refused_with_the_reason(tmp_path: Path) -> None:
    config = read_model_config(save_checkpoint(make_reference("gpt_oss"), tmp_path))

    with pytest.raises(ModelConfigError, match="tensor_parallel: a tensor with the projections of all experts"):
        part_of_config(config, 2)
