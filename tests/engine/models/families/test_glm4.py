"""GLM-4 computes what transformers computes."""

from __future__ import annotations

from pathlib import Path

from tests.engine.models.config.test_config import read
from tests.engine.models.families.parity import IN_CHUNKS, OVER_BLOCKS, check_greedy_text, check_logits


@IN_CHUNKS
def test_logits_equal_transformers(chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits("glm4", chunk_sizes, tmp_path)


@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(shuffle_seed: int | None, tmp_path: Path) -> None:
    check_greedy_text("glm4", shuffle_seed, tmp_path)


def test_half_of_each_head_rotates_unless_the_config_sets_another_share(tmp_path: Path) -> None:
    glm4 = {"model_type": "glm4", "architectures": ["Glm4ForCausalLM"]}

    assert read(tmp_path, **glm4).rope.rotated_share == 0.5
    assert read(tmp_path, **glm4, partial_rotary_factor=1.0).rope.rotated_share == 1.0
