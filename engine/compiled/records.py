"""Memory that compiled code finds by address."""

from __future__ import annotations

import torch

from engine.models.kept_weights import KeptWeight


class Memory:
    """Keeps all memory that records tell the address of."""

    def __init__(self) -> None:
        self._kept: list[torch.Tensor] = []

    def address(self, tensor: torch.Tensor) -> int:
        """Where a tensor lies, which stays there."""
        assert tensor.is_contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()

    def projection(self, kept: KeptWeight) -> tuple[int, ...]:
        """A PROJECTION record of weights, in bfloat16 where that loses nothing."""
        num_outputs, num_inputs = kept.weight.shape
        weight = kept.weight.bfloat16() if kept.fits_bfloat16() else kept.weight
        scales, bias = (0 if found is None else self.address(found) for found in (kept.scales, kept.bias))
        return self.address(weight), weight.itemsize, scales, bias, num_inputs, num_outputs

    def clear(self) -> None:
        """Give it back."""
        self._kept.clear()
