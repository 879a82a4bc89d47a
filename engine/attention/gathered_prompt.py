"""A prompt computed in chunks is gathered once: from then on a chunk's keys and values are added to what was kept.

Of a step's rows with several tokens only the longest is kept: what a gather costs grows with the length of the past.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch


@dataclass(frozen=True, slots=True, eq=False)
class GatheredPrompt:
    """Where such a row stood in a step, and what it goes on from. Told apart by identity."""

    start: int
    """Positions computed before the step."""
    end: int
    blocks: npt.NDArray[np.int64]
    """Of all positions."""
    before: GatheredPrompt | None = None
    """What must be there, with this row's first `start` positions; None: everything is gathered."""

    def after(self, before: GatheredPrompt | None, block_size: int) -> GatheredPrompt:
        """The same row, going on from that of the step before if it was in the same blocks."""
        if before is None or not 0 < self.start <= before.end:
            return self
        num_blocks = -(-self.start // block_size)
        is_same = np.array_equal(self.blocks[:num_blocks], before.blocks[:num_blocks])
        return GatheredPrompt(self.start, self.end, self.blocks, before) if is_same else self


class PromptRow:
    """Keys and values of one layer's longest row with several tokens, as some step left them."""

    __slots__ = ("_keys", "_values", "state")

    def __init__(self) -> None:
        self._keys = self._values = torch.empty(0)
        self.state: GatheredPrompt | None = None
        """What they hold; None: nothing that is of use."""

    def put(self, prompt: GatheredPrompt, start: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Have keys and values [positions, kv_heads, head_dim] from `start` to the end of the row."""
        if self._keys.shape[0] < prompt.end or self._keys.shape[1:] != keys.shape[1:]:
            # Ordinary tensors, so that they can be written both in and out of inference mode.
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
        """Keys and values [end, kv_heads, head_dim] of the row's first positions."""
        return self._keys.narrow(0, 0, end), self._values.narrow(0, 0, end)
