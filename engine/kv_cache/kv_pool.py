"""Size of the KV pool, from measured free memory, configured limits and the useful maximum."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from engine.attention.base import AttentionSpec
from engine.config import CoreConfig, EngineConfigError

logger = logging.getLogger(__name__)

_SCALE_BYTES = 4
_MEMORY_UTILIZATION = {"cpu": 0.5, "cuda": 0.9}
"""Default share of the free memory for the pool: a CPU's memory is shared with other engines and processes."""


def block_bytes(
    specs: Iterable[AttentionSpec], block_size: int, element_bytes: int, *, has_scales: bool = False
) -> int:
    """Return the bytes of one block over all layers, with keys, values and, if any, a scale per position and head."""
    scale_bytes = _SCALE_BYTES if has_scales else 0
    return sum(2 * block_size * spec.num_kv_heads * (spec.head_dim * element_bytes + scale_bytes) for spec in specs)


def useful_blocks(config: CoreConfig, max_model_len: int) -> int:
    """Return the blocks that all sequences of a step need at full length; more would never be used."""
    return config.batch.max_num_seqs * -(-max_model_len // config.kv.block_size)


def memory_share(config: CoreConfig, device_type: str) -> float:
    """Return the share of the free memory that the pool may take."""
    return config.kv.memory_utilization or _MEMORY_UTILIZATION[device_type]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDemand:
    """Memory that a pool takes by its number of blocks.

    Layers with a sliding window may have blocks of their own, of which a certain number is always enough.
    """

    block_bytes: int
    """Bytes of a block over all layers that have one of every block."""
    window_block_bytes: int = 0
    """Bytes of a block over the layers with blocks of their own; 0: there are no such layers."""
    max_window_blocks: int = 0
    """Blocks that these layers need at most."""

    def window_blocks(self, num_blocks: int) -> int:
        """Return the number of blocks of layers with blocks of their own; 0 where there are none."""
        return min(num_blocks, self.max_window_blocks)

    def num_bytes(self, num_blocks: int) -> int:
        """Return the bytes of a pool of `num_blocks` blocks."""
        return num_blocks * self.block_bytes + self.window_blocks(num_blocks) * self.window_block_bytes

    def blocks_in(self, num_bytes: int) -> int:
        """Return the largest number of blocks that fit into `num_bytes`."""
        if num_bytes <= self.num_bytes(self.max_window_blocks):
            return max(0, num_bytes) // (self.block_bytes + self.window_block_bytes)
        return (num_bytes - self.max_window_blocks * self.window_block_bytes) // self.block_bytes


def pool_blocks(config: CoreConfig, demand: PoolDemand, free_bytes: int, max_model_len: int, *, share: float) -> int:
    """Return the number of blocks for the pool.

    Args:
        config: Limits of the pool.
        demand: Memory of the pool by its blocks.
        free_bytes: Memory left beside the peak of the largest step.
        max_model_len: Longest sequence.
        share: Share of the free memory that the pool may take.

    Raises:
        EngineConfigError: The configured pool does not fit, or the memory holds no block.
    """
    if config.kv.num_blocks:
        if demand.num_bytes(config.kv.num_blocks) > free_bytes:
            raise EngineConfigError(
                f"num_blocks: {config.kv.num_blocks} blocks take {demand.num_bytes(config.kv.num_blocks)} bytes and do "
                f"not fit into the {free_bytes} bytes that are free beside the largest step"
            )
        return config.kv.num_blocks
    name, allowed_bytes = "memory_utilization", int(free_bytes * share)
    if config.kv.kv_memory_bytes:
        if config.kv.kv_memory_bytes > free_bytes:
            raise EngineConfigError(
                f"kv_memory_bytes: {config.kv.kv_memory_bytes} asked for, {free_bytes} are free beside the largest step"
            )
        name, allowed_bytes = "kv_memory_bytes", config.kv.kv_memory_bytes
    num_blocks = min(useful_blocks(config, max_model_len), demand.blocks_in(allowed_bytes))
    if num_blocks < 1:
        raise EngineConfigError(
            f"{name}: {allowed_bytes} bytes for the KV pool do not hold one block of {demand.num_bytes(1)} bytes; "
            f"raise {name}, or lower max_num_batched_tokens or max_num_seqs"
        )
    return num_blocks


def reachable_model_len(max_model_len: int, num_blocks: int, block_size: int) -> int:
    """Return the longest sequence that both the model and the pool can hold; a limit by the pool is logged."""
    num_positions = num_blocks * block_size
    if num_positions < max_model_len:
        logger.warning(
            "max_model_len: sequences end at %d tokens instead of %d, because the KV pool holds no more; "
            "raise memory_utilization or kv_memory_bytes",
            *(num_positions, max_model_len),
        )
    return min(max_model_len, num_positions)
