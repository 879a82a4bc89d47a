"""Memory that the largest step needs beside the weights, and the rest, which is there for the KV pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from engine.models.config.config import ModelConfig
from engine.runner.host_limits import HostLimits

_FLOAT_BYTES = 4
_SAMPLED_COPIES = 6
"""Arrays of the vocabulary's size that sampling holds at most: logits, sorted ones with int64 places, sums, shares."""

_RECURRENT_COPIES = 5
"""Arrays of queries, keys and values that a recurrent layer has at most: projected, padded, moved, summed, by heads."""


class MemoryProbe(Protocol):
    """Free memory, and what the largest step takes of it."""

    def step_bytes(self, run: Callable[[], None], bound: int) -> int:
        """Return the bytes that the largest step takes at its peak: measured by `run`, or else the bound."""
        ...

    def free_bytes(self) -> int:
        """Return the number of bytes that can be allocated now."""
        ...


def largest_step_bytes(config: ModelConfig, *, num_seqs: int, num_tokens: int, context_len: int) -> int:
    """Return a bound of the bytes that a float32 step takes on a CPU beside weights and pool.

    Running such a step to measure it takes up to a minute.

    Args:
        config: Shape of the model.
        num_seqs: Sequences that choose a token.
        num_tokens: Tokens of all sequences.
        context_len: Longest sequence.
    """
    sampled = _SAMPLED_COPIES * num_seqs * config.vocab_size
    qkv_size = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    recurrent = config.traits.recurrent
    recurrent_size = 0 if recurrent is None else _RECURRENT_COPIES * recurrent.num_channels
    activations = num_tokens * (4 * config.hidden_size + qkv_size + 3 * config.intermediate_size + recurrent_size)
    # The mask of a prompt's chunk, and the gathered keys and values of one sequence.
    attended = num_tokens * context_len * config.num_heads // config.num_kv_heads
    gathered = 2 * context_len * config.num_kv_heads * config.head_dim
    return _FLOAT_BYTES * (sampled + activations + attended + gathered)


class HostMemory:
    """Main memory, within the control group's limit, shared with as many processes that need as much."""

    def __init__(self, limits: HostLimits, num_sharers: int = 1) -> None:
        self._limits = limits
        self._num_sharers = num_sharers

    def step_bytes(self, run: Callable[[], None], bound: int) -> int:
        """Return the bound."""
        return bound

    def free_bytes(self) -> int:
        """Return the number of bytes that can be allocated without swapping."""
        return self._limits.free_memory_bytes() // self._num_sharers


class CudaMemory:
    """One GPU's memory as the driver and torch's allocator see it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def step_bytes(self, run: Callable[[], None], bound: int) -> int:
        """Return the peak of torch's allocations while the step runs, in bytes above their size behind it."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        run()
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - torch.cuda.memory_allocated(self._device)

    def free_bytes(self) -> int:
        """Return the driver's free bytes after torch's unused reserve has been released."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self._device)[0]
