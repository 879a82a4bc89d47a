"""Measures what the largest step needs beside the weights, and what is left for the KV pool."""

from __future__ import annotations

from typing import Protocol

import torch

from engine.runner.host_limits import HostLimits


class MemoryProbe(Protocol):
    """Free memory and the peak of what ran since `start`."""

    def begin(self) -> None:
        """Forget earlier peaks."""
        ...

    def transient_bytes(self) -> int:
        """How far use rose above what is held now, since `start`."""
        ...

    def free_bytes(self) -> int:
        """What can be allocated now."""
        ...


class HostMemory:
    """Main memory, within the control group's limit, shared with as many processes that need as much."""

    def __init__(self, limits: HostLimits, num_sharers: int = 1) -> None:
        self._limits = limits
        self._num_sharers = num_sharers

    def begin(self) -> None:
        """Forget earlier peaks."""
        self._limits.reset_peak_memory()

    def transient_bytes(self) -> int:
        """How far resident memory rose above what it is now."""
        return self._limits.transient_memory_bytes()

    def free_bytes(self) -> int:
        """What can be allocated without swapping."""
        return self._limits.free_memory_bytes() // self._num_sharers


class CudaMemory:
    """One GPU's memory as the driver and torch's allocator see it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def begin(self) -> None:
        """Forget earlier peaks."""
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)

    def transient_bytes(self) -> int:
        """How far torch's allocations rose above what they are now."""
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - torch.cuda.memory_allocated(self._device)

    def free_bytes(self) -> int:
        """What the driver has left once torch's unused reserve is returned."""
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(self._device)[0]
