"""Pool sizes from bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.attention.base import AttentionSpec
from engine.config import CoreConfig, EngineConfigError
from engine.kv_cache.kv_pool import PoolDemand, block_bytes, memory_share, pool_blocks, reachable_model_len


def config(**settings: Any) -> CoreConfig:
    """Four rows of 16-token blocks."""
    return CoreConfig.of(model_dir=Path("model"), **({"max_num_seqs": 4} | settings))


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
    assert (
        pool_blocks(config(**settings), PoolDemand(block_bytes=100), free_bytes, max_model_len=256, share=0.5)
        == expected
    )


@pytest.mark.parametrize(
    ("settings", "named"),
    [({}, "memory_utilization"), ({"kv_memory_bytes": 500}, "kv_memory_bytes"), ({"num_blocks": 2}, "num_blocks")],
)
def test_too_little_memory_is_an_error_with_a_remedy(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(EngineConfigError, match=f"^{named}"):
        pool_blocks(config(**settings), PoolDemand(block_bytes=100), 150, max_model_len=256, share=0.5)


def test_a_sequence_reaches_no_farther_than_the_pool_which_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert reachable_model_len(50, 4, 16) == 50
    assert not caplog.messages
    assert reachable_model_len(256, 4, 16) == 64
    assert caplog.messages == [
        "max_model_len: sequences end at 64 tokens instead of 256, because the KV pool holds no more; "
        "raise memory_utilization or kv_memory_bytes"
    ]


@pytest.mark.parametrize(
    ("settings", "device", "expected"),
    [({}, "cpu", 0.5), ({}, "cuda", 0.9), ({"memory_utilization": 0.3}, "cpu", 0.3)],
)
def test_the_share_is_smaller_where_others_need_memory_too(
    settings: dict[str, Any], device: str, expected: float
) -> None:
    assert memory_share(config(**settings), device) == expected


@pytest.mark.parametrize("num_bytes", [0, 119, 120, 1_199, 1_200, 1_299, 1_300, 10_000])
def test_blocks_of_windowed_layers_stop_to_count_where_no_more_are_needed(num_bytes: int) -> None:
    demand = PoolDemand(block_bytes=100, window_block_bytes=20, max_window_blocks=10)
    num_blocks = demand.blocks_in(num_bytes)
    assert demand.num_bytes(num_blocks) <= num_bytes < demand.num_bytes(num_blocks + 1)
    assert demand.window_blocks(num_blocks) == min(num_blocks, 10)
