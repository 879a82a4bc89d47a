"""Bit masks of grammars as tensors."""

from __future__ import annotations

import numpy as np
import torch

from engine.sampling.grammar import Bitmask


def unpack_mask(bitmask: Bitmask, vocab_size: int, device: torch.device) -> torch.Tensor:
    """bool [positions, vocab] on the device: whether a token may stand at a position."""
    if device.type == "cpu":
        bits = np.unpackbits(bitmask.view(np.uint8), axis=1, count=vocab_size, bitorder="little")
        return torch.from_numpy(bits).view(torch.bool)
    # An eighth of the bytes cross the bus.
    packed = torch.from_numpy(bitmask.view(np.uint8)).to(device, non_blocking=True)
    shifts = torch.arange(8, dtype=torch.uint8, device=device)
    bits_of_bytes = (packed.unsqueeze(-1) >> shifts).bitwise_and_(1)
    return bits_of_bytes.view(len(bitmask), -1)[:, :vocab_size].bool()
