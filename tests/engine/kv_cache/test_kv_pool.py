"""Pool sizes from bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.attention.base import AttentionSpec
from engine.config import CoreConfig, EngineConfigError
from engine.kv_cache.kv_pool import block_bytes, pool_blocks, reachable_model_len


def config(**settings: Any) -> CoreConfig:
    """Four rows of 16-token blocks, half of the memory."""
    return CoreConfig.of(model_dir=Path("model"), **({"max_num_seqs": 4, "memory_ratio": 0.5} | settings))


def test_a_block_takes_keys_and_values_of_every_layer() -> None:
    spec = AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=16, scale=0.25)
    assert block_bytes([spec, spec], 16, 4) == 2 * 2 * 16 * 2 * 16 * 4


@pytest.mark.parametrize(
    ("settings", "free_bytes", "expected"),
    [
        ({}, 10_000, 50),
        ({}, 10_000_000, 64),
        ({"kv_memory_bytes": 1_000}, 10_000, 10),
        ({"kv_memory_bytes": 9_000}, 10_000, 64),
        ({"num_blocks": 99}, 10_000, 99),
    ],
    ids=["a share of what is free", "no more than useful", "as many bytes as told", "bytes, but useful", "a number"],
)
def test_the_pool_is_sized_by(settings: dict[str, Any], free_bytes: int, expected: int) -> None:
    assert pool_blocks(config(**settings), 100, free_bytes, max_model_len=256) == expected


@pytest.mark.parametrize(
    ("settings", "named"),
    [({}, "memory_ratio"), ({"kv_memory_bytes": 500}, "kv_memory_bytes"), ({"num_blocks": 2}, "num_blocks")],
)
def test_too_little_memory_is_an_error_with_a_remedy(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(EngineConfigError, match=named):
        pool_blocks(config(**settings), 100, 150, max_model_len=256)


def test_a_sequence_reaches_no_farther_than_the_pool() -> None:
    assert reachable_model_len(256, 4, 16) == 64
    assert reachable_model_len(50, 4, 16) == 50
