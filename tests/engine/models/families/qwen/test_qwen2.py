"""Qwen2 computes what transformers computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.models.families.parity import IN_CHUNKS, OVER_BLOCKS, check_greedy_text, check_logits


@pytest.mark.parametrize("variant", ["qwen2", "qwen2_windowed"])
@IN_CHUNKS
def test_logits_equal_transformers(variant: str, chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits(variant, chunk_sizes, tmp_path)


@pytest.mark.parametrize("variant", ["qwen2"])
@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(
    variant: str, shuffle_seed: int | None, tmp_path: Path
) -> None:
    check_greedy_text(variant, shuffle_seed, tmp_path)
