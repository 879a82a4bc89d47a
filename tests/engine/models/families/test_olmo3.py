"""OLMo 3 computes what transformers computes."""

from __future__ import annotations

from pathlib import Path

from tests.engine.models.config.test_config import read
from tests.engine.models.families.parity import IN_CHUNKS, OVER_BLOCKS, check_greedy_text, check_logits


@IN_CHUNKS
def test_logits_equal_transformers(chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits("olmo3", chunk_sizes, tmp_path)


@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(shuffle_seed: int | None, tmp_path: Path) -> None:
    check_greedy_text("olmo3", shuffle_seed, tmp_path)


def test_published_rope_scaling_applies_to_layers_with_full_attention_alone(tmp_path: Path) -> None:
    scaling = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}
    config = read(
        tmp_path, model_type="olmo3", architectures=["Olmo3ForCausalLM"], rope_theta=5e5, rope_scaling=scaling
    )

    assert config.local_rope is not None
    assert (config.rope.theta, config.local_rope.theta) == (5e5, 5e5)
    assert (config.rope.scaling is None, config.local_rope.scaling) == (False, None)
    assert config.traits.sliding_windows == (4096, 4096, 4096, None)
