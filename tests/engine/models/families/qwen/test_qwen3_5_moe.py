"""Qwen3.5-MoE computes what transformers computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.models.config.checkpoint import CheckpointError
from engine.models.config.config_reader import ModelConfigError
from tests.engine.cpu.execution.test_model import sizes_of
from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.config.test_config import read
from tests.engine.models.families.parity import (
    IN_CHUNKS,
    OVER_BLOCKS,
    PROMPT,
    TOLERANCE,
    check_greedy_text,
    check_logits,
    reference_logits,
)
from tests.engine.models.paged import PagedRunner, Row

# As published with the 35B-A3B, but for the sizes.
PUBLISHED: dict[str, Any] = {
    "model_type": "qwen3_5_moe_text",
    "architectures": None,
    "intermediate_size": "absent",
    "head_dim": 16,
    "attn_output_gate": True,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "mamba_ssm_dtype": "float32",
    "mlp_only_layers": [],
    "moe_intermediate_size": 32,
    "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": False,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "shared_expert_intermediate_size": 24,
    "rope_parameters": {
        "mrope_interleaved": True,
        "mrope_section": [1, 1, 0],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10_000_000,
        "rope_type": "default",
    },
}


@IN_CHUNKS
def test_logits_equal_transformers(chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits("qwen3_5_moe", chunk_sizes, tmp_path)


@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(shuffle_seed: int | None, tmp_path: Path) -> None:
    check_greedy_text("qwen3_5_moe", shuffle_seed, tmp_path)


def stack_experts(folder: Path, num_experts: int) -> None:
    """Join the projections of each layer's experts to the two tensors that the hub's checkpoints have."""
    tensors = load_file(folder / "model.safetensors")
    firsts = [name for name in tensors if name.endswith("experts.0.gate_proj.weight")]
    assert firsts
    for first in firsts:
        prefix = first.removesuffix(".0.gate_proj.weight")
        taken = {
            kind: [tensors.pop(f"{prefix}.{index}.{kind}.weight") for index in range(num_experts)]
            for kind in ("gate_proj", "up_proj", "down_proj")
        }
        pairs = zip(taken["gate_proj"], taken["up_proj"], strict=True)
        tensors[f"{prefix}.gate_up_proj"] = torch.stack([torch.cat(pair) for pair in pairs])
        tensors[f"{prefix}.down_proj"] = torch.stack(taken["down_proj"])
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("variant", ["qwen3_5_moe", "qwen3_moe"])
@pytest.mark.parametrize("compiled_threads", [0, 2])
def test_experts_in_one_tensor_compute_the_same(variant: str, compiled_threads: int, tmp_path: Path) -> None:
    reference = make_reference(variant, **sizes_of(variant))
    folder = save_checkpoint(reference, tmp_path)
    stack_experts(folder, reference.config.num_experts)

    logits = PagedRunner(folder, compiled_threads=compiled_threads).prefill(Row(list(PROMPT)), [13, 48])

    assert (logits - reference_logits(reference, PROMPT)).abs().max() < TOLERANCE


def test_a_misshapen_tensor_of_all_experts_is_named(tmp_path: Path) -> None:
    folder = save_checkpoint(make_reference("qwen3_5_moe"), tmp_path)
    stack_experts(folder, 6)
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.experts.gate_up_proj"
    save_file({**tensors, name: tensors[name].mT.contiguous()}, folder / "model.safetensors")

    with pytest.raises(CheckpointError, match=rf"{name}: expected shape \[6, 64, 48\], got \[6, 48, 64\]"):
        PagedRunner(folder)


def test_the_published_config_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, **PUBLISHED, num_hidden_layers=8)
    experts, recurrent = config.traits.experts, config.traits.recurrent

    assert experts is not None
    assert recurrent is not None
    assert (experts.num_experts, experts.num_chosen, experts.size, experts.shared_size) == (8, 2, 32, 24)
    assert experts.is_normalized
    assert experts.layers == frozenset(range(8))
    assert recurrent.layers == {0, 1, 2, 4, 5, 6}
    assert (config.rope.theta, config.rope.rotated_share) == (1e7, 0.25)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"shared_expert_intermediate_size": "absent"}, "shared_expert_intermediate_size: is required"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok: expected at most the 8 experts"),
        ({"mlp_only_layers": [1]}, "intermediate_size: is required"),
    ],
)
def test_what_cannot_be_served_is_refused(changes: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=complaint):
        read(tmp_path, **{**PUBLISHED, **changes})
