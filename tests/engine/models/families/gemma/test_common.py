"""What the Gemma generations have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.models.config.test_config import GEMMA2, GEMMA3, read


def test_gemma_is_tied_and_alternates_when_its_config_is_silent(tmp_path: Path) -> None:
    config = read(tmp_path, **GEMMA2)

    assert config.tie_word_embeddings
    assert config.traits.sliding_windows == (32, None, 32, None)
    assert read(tmp_path, **GEMMA3).traits.sliding_windows == (32,) * 4
    assert read(tmp_path, **GEMMA3, sliding_window_pattern=3).traits.sliding_windows == (32, 32, None, 32)


@pytest.mark.parametrize("family", [GEMMA2, GEMMA3], ids=["gemma2", "gemma3"])
def test_embeddings_and_scores_are_scaled_by_sizes_of_the_config(family: dict[str, Any], tmp_path: Path) -> None:
    traits = read(tmp_path, **family, query_pre_attn_scalar=64).traits
    assert traits.embedding_scale == pytest.approx(48**0.5)
    assert traits.attention_scale == pytest.approx(0.125)
    assert read(tmp_path, **family).traits.attention_scale == pytest.approx(1 / 16)
    assert (traits.norms, traits.norm_offset, traits.activation) == ("around", 1.0, "gelu_tanh")


def test_only_the_third_generation_normalizes_queries_and_has_a_second_rope(tmp_path: Path) -> None:
    second, third = read(tmp_path, **GEMMA2), read(tmp_path, **GEMMA3)
    assert (second.traits.qk_norm, second.local_rope) == (None, None)
    assert third.traits.qk_norm == "each_head"
    assert third.local_rope is not None
