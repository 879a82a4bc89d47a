"""Size of the KV pool, from measured free memory, configured limits and the useful maximum."""

from __future__ import annotations

from collections.abc import Iterable

from engine.attention.base import AttentionSpec
from engine.config import CoreConfig, EngineConfigError

_SCALE_BYTES = 4


def block_bytes(
    specs: Iterable[AttentionSpec], block_size: int, element_bytes: int, *, has_scales: bool = False
) -> int:
    """Return the bytes of one block over all layers, with keys, values and, if any, a scale per position and head."""
    scale_bytes = _SCALE_BYTES if has_scales else 0
    return sum(2 * block_size * spec.num_kv_heads * (spec.head_dim * element_bytes + scale_bytes) for spec in specs)


def useful_blocks(config: CoreConfig, max_model_len: int) -> int:
    """Return the blocks that all sequences of a step need at full length; more would never be used."""
    return config.batch.max_num_seqs * -(-max_model_len // config.kv.block_size)


def pool_blocks(config: CoreConfig, bytes_per_block: int, free_bytes: int, max_model_len: int) -> int:
    """Return the number of blocks for the pool.

    Args:
        config: Limits of the pool.
        bytes_per_block: Size of a block over all layers.
        free_bytes: Memory left beside the peak of the largest step.
        max_model_len: Longest sequence.

    Raises:
        EngineConfigError: The configured pool does not fit, or the memory holds no block.
    """
    useful = useful_blocks(config, max_model_len)
    if config.kv.num_blocks:
        if config.kv.num_blocks * bytes_per_block > free_bytes:
            raise EngineConfigError(
                f"num_blocks: {config.kv.num_blocks} blocks of {bytes_per_block} bytes do not fit "
                f"into the {free_bytes} bytes that are free beside the largest step"
            )
        return config.kv.num_blocks
    allowed_bytes = int(free_bytes * config.kv.memory_ratio)
    if config.kv.kv_memory_bytes:
        if config.kv.kv_memory_bytes > free_bytes:
            raise EngineConfigError(
                f"kv_memory_bytes: {config.kv.kv_memory_bytes} asked for, {free_bytes} are free beside the largest step"
            )
        allowed_bytes = config.kv.kv_memory_bytes
    num_blocks = min(useful, allowed_bytes // bytes_per_block)
    if num_blocks < 1:
        raise EngineConfigError(
            f"memory_ratio: {allowed_bytes} bytes for the KV pool do not hold one block of {bytes_per_block} bytes; "
            "raise memory_ratio or kv_memory_bytes, or lower max_num_batched_tokens or max_num_seqs"
        )
    return num_blocks


def reachable_model_len(max_model_len: int, num_blocks: int, block_size: int) -> int:
    """Return the longest sequence that both the model and the pool can hold."""
    return min(max_model_len, num_blocks * block_size)
