"""Qwen3.5 computes what transformers computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.models.config.config_reader import ModelConfigError
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

QWEN3_5: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "architectures": ["Qwen3_5ForCausalLM"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}


@IN_CHUNKS
def test_logits_equal_transformers(chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits("qwen3_5", chunk_sizes, tmp_path)


@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(shuffle_seed: int | None, tmp_path: Path) -> None:
    check_greedy_text("qwen3_5", shuffle_seed, tmp_path)


def test_a_prompt_of_several_solved_chunks_equals_transformers(tmp_path: Path) -> None:
    reference = make_reference("qwen3_5")
    runner = PagedRunner(save_checkpoint(reference, tmp_path))
    tokens = (PROMPT * 4)[:203]

    logits = runner.prefill(Row(list(tokens)), [150, 53])

    assert (logits - reference_logits(reference, tokens)).abs().max() < 10 * TOLERANCE


def test_a_step_can_be_computed_again(tmp_path: Path) -> None:
    runner = PagedRunner(save_checkpoint(make_reference("qwen3_5"), tmp_path))
    row = Row(list(PROMPT))
    runner.step([(row, 13)])

    first = runner.step([(row, 9)])[0]
    row.num_computed -= 9

    assert torch.equal(runner.step([(row, 9)])[0], first)


def test_every_fourth_layer_has_attention_by_default(tmp_path: Path) -> None:
    config = read(tmp_path, **QWEN3_5, num_hidden_layers=8)

    assert config.traits.recurrent is not None
    assert config.traits.recurrent.layers == {0, 1, 2, 4, 5, 6}
    assert config.rope.rotated_share == 0.25


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"linear_num_value_heads": 3}, "linear_num_value_heads: 2 key heads do not divide them"),
        ({"layer_types": ["linear_attention"]}, "layer_types: has 1 entries for 4 layers"),
        ({"layer_types": ["mamba"] * 4}, "layer_types: 'mamba' is not supported"),
        ({"linear_key_head_dim": "absent"}, "linear_key_head_dim: is required"),
    ],
)
def test_what_cannot_be_served_is_refused(changes: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=complaint):
        read(tmp_path, **{**QWEN3_5, "head_dim": 16, **changes})
