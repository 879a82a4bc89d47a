"""Phi-3 computes what transformers computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.models.config.test_config import PHI3, read
from tests.engine.models.families.parity import IN_CHUNKS, OVER_BLOCKS, check_greedy_text, check_logits


@pytest.mark.parametrize("variant", ["phi3", "phi3_longrope", "phi3_partial"])
@IN_CHUNKS
def test_logits_equal_transformers(variant: str, chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits(variant, chunk_sizes, tmp_path)


@pytest.mark.parametrize("variant", ["phi3"])
@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(
    variant: str, shuffle_seed: int | None, tmp_path: Path
) -> None:
    check_greedy_text(variant, shuffle_seed, tmp_path)


def test_phi3_is_served_without_the_code_its_checkpoints_name(tmp_path: Path) -> None:
    config = read(tmp_path, **PHI3, auto_map={"AutoModel": "modeling_phi3.Phi3"}, partial_rotary_factor=0.5)

    assert config.rope.rotated_share == 0.5
    assert config.rope.inverse_frequencies(config.head_dim).shape == (2,)
