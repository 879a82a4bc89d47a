"""gpt-oss computes what transformers computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.models.config.config_reader import ModelConfigError
from tests.engine.models.config.test_config import read
from tests.engine.models.families.parity import IN_CHUNKS, OVER_BLOCKS, check_greedy_text, check_logits

GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "architectures": ["GptOssForCausalLM"],
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 128,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 64, "truncate": False},
}


@IN_CHUNKS
def test_logits_equal_transformers(chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits("gpt_oss", chunk_sizes, tmp_path)


@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(shuffle_seed: int | None, tmp_path: Path) -> None:
    check_greedy_text("gpt_oss", shuffle_seed, tmp_path)


def test_every_other_layer_has_a_window(tmp_path: Path) -> None:
    config = read(tmp_path, **GPT_OSS)

    assert config.traits.sliding_windows == (128, None, 128, None)
    assert config.rope.theta == 150_000.0


@pytest.mark.parametrize("key", ["rope_scaling", "sliding_window", "num_local_experts"])
def test_settings_without_a_usual_value_are_required(key: str, tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=f"{key}: is required"):
        read(tmp_path, **{**GPT_OSS, key: "absent"})
