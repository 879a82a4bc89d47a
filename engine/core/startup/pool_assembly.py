"""Size of the KV pool by the memory that is free, and the blocks of layers with a sliding window."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from engine.attention.base import AttentionSpec
from engine.attention.torch_attention import TorchAttention
from engine.attention.torch_kv_cache import block_padding
from engine.config import CoreConfig
from engine.kv_cache.kv_pool import PoolDemand, block_bytes, memory_share, pool_blocks
from engine.kv_cache.state_slots import num_state_slots
from engine.kv_cache.window_blocks import WindowBlocks, window_pool_blocks
from engine.models.decoder import Model
from engine.models.multi_step import NUM_REACHED
from engine.runner.machine import Machine
from engine.runner.memory_probe import largest_step_bytes

logger = logging.getLogger(__name__)

PROBE_CONTEXT_TOKENS = 8192
"""Longest context of the step whose memory is measured; attention works in tiles above it."""


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Blocks of the KV pool."""

    num_blocks: int
    windows: WindowBlocks | None
    """Blocks of layers with a sliding window; None: they have one of every block, as other layers."""

    @property
    def num_window_blocks(self) -> int:
        """Number of blocks of layers with a sliding window that have blocks of their own; 0: there are none."""
        return 0 if self.windows is None else self.windows.num_places


def max_num_seqs(config: CoreConfig) -> int:
    """Return the maximum number of sequences in a step."""
    return min(config.batch.max_num_seqs, config.batch.max_num_batched_tokens)


def plan_pool(
    config: CoreConfig,
    machine: Machine,
    model: Model,
    draft_model: Model | None,
    max_model_len: int,
    *,
    num_blocks: int,
    run_largest_steps: Callable[[int], None],
) -> PoolPlan:
    """Return the blocks of the pool.

    Args:
        config: Limits of the pool.
        machine: Device, and its free memory.
        model: Model whose layers the pool serves.
        draft_model: Model that shares its blocks.
        max_model_len: Longest sequence.
        num_blocks: Blocks that a former core had; 0: as many as fit beside the largest step.
        run_largest_steps: Runs the largest steps with contexts of so many tokens, where a device must measure them.

    Raises:
        EngineConfigError: The configured pool does not fit, or the memory holds no block.
    """
    window = _window(machine, model, config)
    demand = _demand(config, machine, model, draft_model, window)
    num_blocks = num_blocks or _num_blocks(config, machine, model, demand, max_model_len, run_largest_steps)
    num_window_blocks = demand.window_blocks(num_blocks)
    if not num_window_blocks or num_window_blocks == num_blocks:
        return PoolPlan(num_blocks, None)
    logger.info("kv pool: layers with a window of %d tokens have %d blocks", window, num_window_blocks)
    return PoolPlan(
        num_blocks, WindowBlocks(num_blocks, num_window_blocks, window=window, block_size=config.kv.block_size)
    )


def _window(machine: Machine, model: Model, config: CoreConfig) -> int:
    """Return the longest window of layers that can have blocks of their own; 0 where none can."""
    if not isinstance(machine.backend, TorchAttention) or config.compute.tensor_parallel > 1:
        return 0
    return max((spec.sliding_window or 0 for spec in model.attention_specs), default=0)


def _demand(config: CoreConfig, machine: Machine, model: Model, draft_model: Model | None, window: int) -> PoolDemand:
    """Return what a pool takes by its number of blocks."""
    specs = [*model.attention_specs]
    windowed = [spec for spec in specs if window and spec.sliding_window is not None]
    others = [spec for spec in specs if not window or spec.sliding_window is None]
    drafts = [] if draft_model is None else [*draft_model.attention_specs]

    def num_bytes(of_specs: list[AttentionSpec]) -> int:
        """Return the bytes of a block of layers that share memory."""
        size, has_scales = machine.kv_element_bytes, machine.kv_dtype is not None
        is_head_major = isinstance(machine.backend, TorchAttention) and machine.backend.head_major is not None
        padding = block_padding(config.kv.block_size, of_specs, size) if is_head_major and not has_scales else 0
        return block_bytes(of_specs, config.kv.block_size, size, has_scales=has_scales) + padding

    of_drafts = num_bytes(drafts)
    if not windowed or not (others or drafts):  # blocks are needed for whole contexts, or for windows alone
        return PoolDemand(block_bytes=num_bytes(windowed + others) + of_drafts)
    reach = max(config.drafting.num_speculative_tokens, NUM_REACHED) if config.drafting.speculation != "off" else 0
    return PoolDemand(
        block_bytes=num_bytes(others) + of_drafts,
        window_block_bytes=num_bytes(windowed),
        max_window_blocks=window_pool_blocks(
            window,
            config.kv.block_size,
            max_num_seqs=max_num_seqs(config),
            max_num_batched_tokens=config.batch.max_num_batched_tokens,
            max_reach=reach + 1,
        ),
    )


def _num_blocks(
    config: CoreConfig,
    machine: Machine,
    model: Model,
    demand: PoolDemand,
    max_model_len: int,
    run_largest_steps: Callable[[int], None],
) -> int:
    """Return the number of blocks that fit beside the largest step."""
    num_tokens = config.batch.max_num_batched_tokens
    context_len = min(max_model_len, max(num_tokens, PROBE_CONTEXT_TOKENS))
    bound = largest_step_bytes(
        model.config,
        num_seqs=max_num_seqs(config),
        num_tokens=min(num_tokens, context_len),
        context_len=context_len,
    )
    transient_bytes = machine.memory.step_bytes(lambda: run_largest_steps(context_len), bound)
    free_bytes = machine.memory.free_bytes() - transient_bytes
    if model.config.traits.recurrent is not None:
        free_bytes -= num_state_slots(max_num_seqs(config)) * model.config.traits.recurrent.state_bytes
    share = memory_share(config, machine.device.type)
    num_blocks = pool_blocks(config, demand, free_bytes, max_model_len, share=share)
    logger.info(
        "kv pool: %d blocks, %d bytes; memory_utilization %.2f of the %d bytes free beside the largest step's %d",
        *(num_blocks, demand.num_bytes(num_blocks), share, free_bytes, transient_bytes),
    )
    return num_blocks
