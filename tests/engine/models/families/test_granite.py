"""Granite computes what transformers computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.models.config.config_reader import ModelConfigError
from tests.engine.models.config.test_config import read
from tests.engine.models.families.parity import IN_CHUNKS, OVER_BLOCKS, check_greedy_text, check_logits


@IN_CHUNKS
def test_logits_equal_transformers(chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits("granite", chunk_sizes, tmp_path)


@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(shuffle_seed: int | None, tmp_path: Path) -> None:
    check_greedy_text("granite", shuffle_seed, tmp_path)


@pytest.mark.parametrize(
    "key", ["embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"]
)
def test_factors_that_are_no_positive_numbers_are_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=f"{key}: expected a number above 0"):
        read(tmp_path, model_type="granite", architectures=["GraniteForCausalLM"], **{key: 0})
