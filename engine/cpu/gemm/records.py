"""Memory that compiled code reads by address: packed weights of projections, and their records."""

from __future__ import annotations

import torch
from torch.nn import functional

from engine.cpu.gemm import rounded_tiles
from engine.cpu.gemm.compiled_linear import CompiledLinear
from engine.cpu.gemm.matrix_unit import TILE_INPUTS, is_permitted
from engine.cpu.gemm.micro_kernel import TOGETHER
from engine.cpu.gemm.packed_weight import PackedWeight, num_vectors, pack_into
from engine.cpu.gemm.tiles import LANES
from engine.huge_pages import HugePages
from engine.models.raw_weights import RawWeight

Record = tuple[int, ...]
"""Fields of a PROJECTION record."""


class RecordMemory:
    """Owner of all memory whose addresses records hold; it packs the weights of a model's projections."""

    def __init__(self) -> None:
        self._retained: list[torch.Tensor] = []
        self._pages = HugePages()

    def address(self, tensor: torch.Tensor) -> int:
        """Return a tensor's address, and keep the tensor alive."""
        assert tensor.is_contiguous()
        self._retained.append(tensor)
        return tensor.data_ptr()

    def linear(self, raw: RawWeight) -> CompiledLinear:
        """Return a projection with packed weights, in bfloat16 where that is exact."""
        record, weight = self._packed(raw)
        halves = self.halves(raw, record[0]) if is_permitted() else 0
        kind = str(weight.packed.dtype).removeprefix("torch.")
        if raw.rounds_inputs:
            kind += " times int8" if rounded_tiles.IS_THERE else " times rounded float32"
        return CompiledLinear(
            weight, raw.bias, record, owner=self, kind=kind, halves=halves, rounds_inputs=raw.rounds_inputs
        )

    def projection(self, raw: RawWeight) -> Record:
        """Return a PROJECTION record of weights, in bfloat16 where that is exact."""
        return self._packed(raw)[0]

    def clear(self) -> None:
        """Release all memory."""
        self._retained.clear()
        self._pages = HugePages()

    def _packed(self, raw: RawWeight) -> tuple[Record, PackedWeight]:
        if raw.rounds_inputs and rounded_tiles.IS_THERE:
            return self._of_codes(raw)
        num_outputs, num_inputs = raw.weight.shape
        dtype = torch.bfloat16 if raw.fits_bfloat16() else raw.weight.dtype
        if dtype not in (torch.bfloat16, torch.int8):
            dtype = torch.float32
        packed = self._pack(raw.weight, dtype, 2 if dtype == torch.bfloat16 else 1)
        scales, bias = (0 if found is None else self.address(found) for found in (raw.scales, raw.bias))
        at, rounds = self.address(packed), int(raw.rounds_inputs)
        record = at, 0, dtype.itemsize, scales, bias, rounds, 0, num_inputs, num_outputs, 0
        return record, PackedWeight(packed, raw.scales, num_outputs)

    def _of_codes(self, raw: RawWeight) -> tuple[Record, PackedWeight]:
        """Return weights that are multiplied as integers."""
        num_outputs, num_inputs = raw.weight.shape
        assert raw.scales is not None
        missing = -num_outputs % LANES
        offsets = -rounded_tiles.OFFSET * raw.weight.sum(1, dtype=torch.int32)
        padded = (functional.pad(numbers, (0, missing)) for numbers in (raw.scales.float(), offsets))
        scales, starts = (self.address(numbers.contiguous()) for numbers in padded)
        bias = 0 if raw.bias is None else self.address(raw.bias)
        packed = self._pack(raw.weight, torch.int8, TOGETHER)
        record = self.address(packed), 0, raw.weight.itemsize, scales, bias, 1, starts, num_inputs, num_outputs, 0
        return record, PackedWeight(packed, raw.scales, num_outputs)

    def halves(self, raw: RawWeight, packed_at: int) -> int:
        """Return the address of weights as the matrix unit reads them; 0 if it cannot compute the projection."""
        num_outputs, num_inputs = raw.weight.shape
        if raw.rounds_inputs or num_inputs % TILE_INPUTS or num_outputs % LANES:
            return 0
        if raw.weight.dtype == torch.int8:
            return self.address(self._pack(raw.weight, torch.bfloat16, 2))
        return packed_at if raw.fits_bfloat16() else 0

    def _pack(self, weight: torch.Tensor, dtype: torch.dtype, together: int) -> torch.Tensor:
        num_outputs, num_inputs = weight.shape
        shape = num_vectors(num_outputs), num_inputs // together, LANES, together
        packed = self._pages.zeros(*shape, dtype=dtype)
        pack_into(packed, weight)
        return packed
