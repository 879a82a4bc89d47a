"""Memory that compiled code reads by address."""

from __future__ import annotations

import torch

from engine.cpu.gemm.code_weights import is_packable, pack_codes
from engine.cpu.gemm.matrix_unit import TILE_INPUTS
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
        """Return a PROJECTION record of weights: as codes if they are quantized, otherwise for float32 inputs."""
        return self._of_codes(retained) if is_packable(retained) else self.of_floats(retained)

    def of_floats(self, retained: RawWeight) -> tuple[int, ...]:
        """Return a PROJECTION record whose inputs stay float32; weights are bfloat16 where that is exact."""
        num_outputs, num_inputs = retained.weight.shape
        weight = retained.weight.bfloat16() if retained.fits_bfloat16() else retained.weight
        scales, bias = (0 if found is None else self.address(found) for found in (retained.scales, retained.bias))
        at = self.address(self._pages.copy(packed(weight)))
        return at, 0, weight.itemsize, scales, bias, 0, 0, 0, num_inputs, num_outputs, 0

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
        found = pack_codes(retained)
        at = self.address(self._pages.copy(found.codes))
        numbers = (found.output_scales, retained.bias, found.scales, found.minima)
        scales, bias, group_scales, minima = (0 if one is None else self.address(one) for one in numbers)
        return at, 0, 1, scales, bias, found.kind, group_scales, minima, num_inputs, num_outputs, 0

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
