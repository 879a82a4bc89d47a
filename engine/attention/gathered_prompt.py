"""Gathered keys and values of a prompt in chunks: each chunk adds its own to those of the chunk before.

Only the longest sequence with several tokens in a step is retained, because a gather's cost grows with the past's
length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch


@dataclass(frozen=True, slots=True, eq=False)
class GatheredPrompt:
    """State of such a sequence in a step, and the state that it continues; compared by identity."""

    start: int
    """Number of positions computed before the step."""
    end: int
    blocks: npt.NDArray[np.int64]
    """Blocks of all positions."""
    before: GatheredPrompt | None = None
    """State that the memory must be in for its first `start` positions to be reused; None: gather everything."""

    def after(self, before: GatheredPrompt | None, block_size: int) -> GatheredPrompt:
        """Return this state as the continuation of the step before, if it was in the same blocks."""
        if before is None or not 0 < self.start <= before.end:
            return self
        num_blocks = -(-self.start // block_size)
        is_same = np.array_equal(self.blocks[:num_blocks], before.blocks[:num_blocks])
        return GatheredPrompt(self.start, self.end, self.blocks, before) if is_same else self


class PromptMemory:
    """Keys and values of one layer's longest sequence with several tokens, as of some step."""

    __slots__ = ("_keys", "_values", "state")

    def __init__(self) -> None:
        self._keys = self._values = torch.empty(0)
        self.state: GatheredPrompt | None = None
        """Content of the memory; None: nothing of use."""

    def put(self, prompt: GatheredPrompt, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store keys and values [positions, kv_heads, head_dim] from `start` to the sequence's end."""
        if self._keys.shape[0] < prompt.end or self._keys.shape[1:] != keys.shape[1:]:
            # Ordinary tensors can be written both in and out of inference mode.
            with torch.inference_mode(False):
                shape = (2 ** (prompt.end - 1).bit_length(), *keys.shape[1:])
                grown = keys.new_empty(shape), values.new_empty(shape)
            if start:
                for new, old in zip(grown, (self._keys, self._values), strict=True):
                    new[:start].copy_(old[:start])
            self._keys, self._values = grown
        self._keys[start : prompt.end].copy_(keys)
        self._values[start : prompt.end].copy_(values)
        self.state = prompt

    def read(self, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values [end, kv_heads, head_dim] of the first positions."""
        return self._keys.narrow(0, 0, end), self._values.narrow(0, 0, end)
