"""Small arrays on their way to a device."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def to_device(numbers: Sequence[float], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of these numbers. On a GPU nobody waits: a plain copy would wait for all work launched before it."""
    if device.type != "cuda":
        return torch.tensor(numbers, dtype=dtype, device=device)
    return torch.tensor(numbers, dtype=dtype, pin_memory=True).to(device, non_blocking=True)
