"""Qwen3-Next computes what transformers computes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.models.checkpoints import make_reference, save_checkpoint
from tests.engine.models.config.test_config import read
from tests.engine.models.families.parity import (
    IN_CHUNKS,
    OVER_BLOCKS,
    PROMPT,
    TOLERANCE,
    check_greedy_text,
    check_logits,
    check_logits_of,
    reference_logits,
)
from tests.engine.models.paged import PagedRunner, Row

# As published with the 80B-A3B, but for the sizes.
PUBLISHED: dict[str, Any] = {
    "model_type": "qwen3_next",
    "architectures": ["Qwen3NextForCausalLM"],
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "full_attention_interval": 4,
    "head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 8,
    "mlp_only_layers": [],
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "partial_rotary_factor": 0.25,
    "rope_scaling": None,
    "rope_theta": 10_000_000,
    "shared_expert_intermediate_size": 24,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
}


@IN_CHUNKS
def test_logits_equal_transformers(chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits("qwen3_next", chunk_sizes, tmp_path)


@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(shuffle_seed: int | None, tmp_path: Path) -> None:
    check_greedy_text("qwen3_next", shuffle_seed, tmp_path)


def test_normalized_weights_of_the_chosen_experts_equal_transformers(tmp_path: Path) -> None:
    check_logits_of(make_reference("qwen3_next", norm_topk_prob=True, mlp_only_layers=[]), [512], tmp_path)


def test_tensors_that_predict_further_tokens_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reference = make_reference("qwen3_next")
    folder = save_checkpoint(reference, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "mtp.fc.weight": torch.zeros(48, 96)}, folder / "model.safetensors")

    with caplog.at_level(logging.INFO, logger="engine.models.loading.loader"):
        logits = PagedRunner(folder).prefill(Row(list(PROMPT)), [512])

    assert (logits - reference_logits(reference, PROMPT)).abs().max() < TOLERANCE
    assert "1 tensors of other parts are ignored" in caplog.text


def test_the_published_config_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, **PUBLISHED, num_hidden_layers=8)
    experts, recurrent = config.traits.experts, config.traits.recurrent

    assert experts is not None
    assert recurrent is not None
    assert (experts.num_experts, experts.shared_size, experts.is_normalized) == (8, 24, True)
    assert recurrent.layers == {0, 1, 2, 4, 5, 6}
    assert recurrent.layout == "by_key_head"
    assert config.rope.rotated_share == 0.25


def test_chosen_experts_are_normalized_by_default(tmp_path: Path) -> None:
    config = read(tmp_path, **{**PUBLISHED, "norm_topk_prob": "absent"})

    assert config.traits.experts is not None
    assert config.traits.experts.is_normalized
