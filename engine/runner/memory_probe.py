"""Measurement of the memory that the largest step needs beside the weights, and of the rest for the KV pool."""

from __future__ import annotations

from typing import Protocol

import torch

from engine.runner.host_limits import HostLimits


class MemoryProbe(Protocol):
    """Free memory and the peak of what ran since `begin`."""

    def begin(self) -> None:
        """Reset the peak."""
        ...

    def transient_bytes(self) -> int:
        """Return the peak of the memory use since `begin`, in bytes above the present use."""
        ...

    def free_bytes(self) -> int:
        """Return the number of bytes that can be allocated now."""
        ...


class HostMemory:
    """Main memory, within the control group's limit, shared with as many processes that need as much."""

    def __init__(self, limits: HostLimits, num_sharers: int = 1) -> None:
        self._limits = limits
        self._num_sharers = num_sharers

    def begin(self) -> None:
        """Reset the peak."""
        self._limits.reset_peak_memory()

    def transient_bytes(self) -> int:
        """Return the peak of the resident memory, in bytes above its present size."""
        return self._limits.transient_memory_bytes()

    def free_bytes(self) -> int:
        """Return the number of bytes that can be allocated without swapping."""
        return self._limits.free_memory_bytes() // self._num_sharers


class CudaMemory:
    """One GPU's memory as the driver and torch's allocator see it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def begin(self) -> None:
        """Reset the peak."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)

    def transient_bytes(self) -> int:
        """Return the peak of torch's allocations, in bytes above their present size."""
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - torch.cuda.memory_allocated(self._device)

    def free_bytes(self) -> int:
        """Return the driver's free bytes after torch's unused reserve has been released."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self._device)[0]
