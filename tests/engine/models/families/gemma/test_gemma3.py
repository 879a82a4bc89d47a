"""Gemma 3 computes what transformers computes."""

from __future__ import annotations

from pathlib import Path

from tests.engine.models.config.test_config import GEMMA3, read
from tests.engine.models.families.parity import IN_CHUNKS, OVER_BLOCKS, check_greedy_text, check_logits


@IN_CHUNKS
def test_logits_equal_transformers(chunk_sizes: list[int], tmp_path: Path) -> None:
    check_logits("gemma3", chunk_sizes, tmp_path)


@OVER_BLOCKS
def test_greedy_text_equals_transformers_in_a_mixed_batch(shuffle_seed: int | None, tmp_path: Path) -> None:
    check_greedy_text("gemma3", shuffle_seed, tmp_path)


def test_gemma3_rope_layouts_mean_the_same(tmp_path: Path) -> None:
    linear = {"rope_type": "linear", "factor": 8.0}
    by_kind = {"full_attention": {**linear, "rope_theta": 5e5}, "sliding_attention": {"rope_theta": 1e3}}

    new = read(tmp_path, **GEMMA3, rope_parameters=by_kind)
    old = read(tmp_path, **GEMMA3, rope_theta=5e5, rope_local_base_freq=1e3, rope_scaling=linear)
    usual = read(tmp_path, **GEMMA3)

    assert (new.rope, new.local_rope) == (old.rope, old.local_rope)
    assert usual.local_rope is not None
    assert (usual.rope.theta, usual.local_rope.theta) == (1e6, 1e4)
