"""Bit masks of grammars as tensors."""

from __future__ import annotations

import numpy as np
import torch

from engine.sampling.grammar import Bitmask


def unpack_mask(bitmask: Bitmask, vocab_size: int, device: torch.device) -> torch.Tensor:
    """Unpack bit masks to bool [positions, vocab] on the device: True where a token is allowed."""
    if device.type == "cpu":
        bits = np.unpackbits(bitmask.view(np.uint8), axis=1, count=vocab_size, bitorder="little")
        return torch.from_numpy(bits).view(torch.bool)
    # The packed form transfers an eighth of the bytes.
    packed = torch.from_numpy(bitmask.view(np.uint8)).to(device, non_blocking=True)
    shifts = torch.arange(8, dtype=torch.uint8, device=device)
    bits_of_bytes = (packed.unsqueeze(-1) >> shifts).bitwise_and_(1)
    return bits_of_bytes.view(len(bitmask), -1)[:, :vocab_size].bool()
