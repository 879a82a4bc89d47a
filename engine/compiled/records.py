"""Memory that compiled code finds by address."""

from __future__ import annotations

import torch

from engine.compiled.matrix_unit import is_permitted
from engine.compiled.tiles import LANES
from engine.models.kept_weights import KeptWeight
from engine.wide_pages import WidePages


class Memory:
    """Keeps all memory that records tell the address of."""

    def __init__(self) -> None:
        self._kept: list[torch.Tensor] = []
        self._pages = WidePages()

    def address(self, tensor: torch.Tensor) -> int:
        """Where a tensor lies, which stays there."""
        assert tensor.is_contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()

    def projection(self, kept: KeptWeight) -> tuple[int, ...]:
        """A PROJECTION record of weights, in bfloat16 where that loses nothing."""
        num_outputs, num_inputs = kept.weight.shape
        weight = kept.weight.bfloat16() if kept.fits_bfloat16() else kept.weight
        # The matrix unit reads them as they are.
        plain = self.address(weight) if is_permitted() and weight.itemsize < weight.float().itemsize else 0
        scales, bias = (0 if found is None else self.address(found) for found in (kept.scales, kept.bias))
        at = self.address(self._pages.copy(packed(weight)))
        return at, plain, weight.itemsize, scales, bias, num_inputs, num_outputs

    def clear(self) -> None:
        """Give it back."""
        self._kept.clear()
        self._pages = WidePages()


def packed(weight: torch.Tensor) -> torch.Tensor:
    """Weights [out, in] as vectors of outputs [out / LANES, in, LANES], the last ones filled up with zeros.

    Of bfloat16, two inputs' stand in pairs: [out / LANES, in / 2, LANES, 2].
    """
    num_outputs, num_inputs = weight.shape
    num_vectors, together = -(-num_outputs // LANES), 2 if weight.dtype == torch.bfloat16 else 1
    found = weight.new_zeros(num_vectors * LANES, num_inputs)
    found[:num_outputs] = weight
    return found.view(num_vectors, LANES, num_inputs // together, together).transpose(1, 2).contiguous()
