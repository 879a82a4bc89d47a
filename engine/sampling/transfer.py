"""Asynchronous transfer of small arrays to a device."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def to_device(numbers: Sequence[float], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a tensor of the numbers; on a GPU the copy does not wait for earlier work, unlike a plain copy."""
    if device.type != "cuda":
        return torch.tensor(numbers, dtype=dtype, device=device)
    return torch.tensor(numbers, dtype=dtype, pin_memory=True).to(device, non_blocking=True)
