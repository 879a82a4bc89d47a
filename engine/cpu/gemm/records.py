"""Memory that compiled code reads by address."""

from __future__ import annotations

import torch
from torch.nn import functional

from engine.cpu.gemm import rounded_tiles
from engine.cpu.gemm.matrix_unit import TILE_INPUTS
from engine.cpu.gemm.micro_kernel import TOGETHER
from engine.cpu.gemm.tiles import LANES
from engine.huge_pages import HugePages
from engine.models.raw_weights import RawWeight


class RecordMemory:
    """Owner of all memory whose addresses records hold."""

    def __init__(self) -> None:
        self._retained: list[torch.Tensor] = []
        self._pages = HugePages()

    def address(self, tensor: torch.Tensor) -> int:
        """Return a tensor's address, and keep the tensor alive."""
        assert tensor.is_contiguous()
        self._retained.append(tensor)
        return tensor.data_ptr()

    def projection(self, retained: RawWeight) -> tuple[int, ...]:
        """Return a PROJECTION record of weights, in bfloat16 where that is exact."""
        num_outputs, num_inputs = retained.weight.shape
        if retained.rounds_inputs and rounded_tiles.IS_THERE:
            return self._of_codes(retained)
        weight = retained.weight.bfloat16() if retained.fits_bfloat16() else retained.weight
        scales, bias = (0 if found is None else self.address(found) for found in (retained.scales, retained.bias))
        at = self.address(self._pages.copy(packed(weight)))
        return at, 0, weight.itemsize, scales, bias, int(retained.rounds_inputs), 0, num_inputs, num_outputs, 0

    def halves(self, retained: RawWeight, packed_at: int) -> int:
        """Return the address of weights as the matrix unit reads them; 0 if it cannot compute the projection.

        Args:
            retained: Weights of the projection.
            packed_at: Address of the same weights as `projection` packed them.
        """
        num_outputs, num_inputs = retained.weight.shape
        if retained.rounds_inputs or num_inputs % TILE_INPUTS or num_outputs % LANES:
            return 0
        if retained.weight.dtype == torch.int8:
            return self.address(self._pages.copy(packed(retained.weight.bfloat16())))
        return packed_at if retained.fits_bfloat16() else 0

    def _of_codes(self, retained: RawWeight) -> tuple[int, ...]:
        """Return the record of weights that are multiplied as integers."""
        num_outputs, num_inputs = retained.weight.shape
        assert retained.scales is not None
        missing = -num_outputs % LANES
        offsets = -rounded_tiles.OFFSET * retained.weight.sum(1, dtype=torch.int32)
        padded = (functional.pad(numbers, (0, missing)) for numbers in (retained.scales.float(), offsets))
        scales, starts = (self.address(numbers.contiguous()) for numbers in padded)
        bias = 0 if retained.bias is None else self.address(retained.bias)
        at = self.address(self._pages.copy(_in_groups(retained.weight, TOGETHER)))
        return at, 0, retained.weight.itemsize, scales, bias, 1, starts, num_inputs, num_outputs, 0

    def clear(self) -> None:
        """Release all memory."""
        self._retained.clear()
        self._pages = HugePages()


def packed(weight: torch.Tensor) -> torch.Tensor:
    """Pack weights [out, in] as vectors of outputs [out / LANES, in, LANES], padded with zeros.

    In bfloat16, two inputs are interleaved in pairs: [out / LANES, in / 2, LANES, 2].
    """
    return _in_groups(weight, 2 if weight.dtype == torch.bfloat16 else 1)


def _in_groups(weight: torch.Tensor, together: int) -> torch.Tensor:
    """Return vectors of outputs [out / LANES, in / together, LANES, together]."""
    num_outputs, num_inputs = weight.shape
    num_vectors = -(-num_outputs // LANES)
    found = weight.new_zeros(num_vectors * LANES, num_inputs)
    found[:num_outputs] = weight
    return found.view(num_vectors, LANES, num_inputs // together, together).transpose(1, 2).contiguous()
