"""Memory that compiled code reads by address: packed weights of projections, and their records."""

from __future__ import annotations

from typing import NamedTuple

import torch

from engine.cpu.gemm import pair_tiles
from engine.cpu.gemm.code_weights import can_regroup, is_packable, pack_codes, regrouped
from engine.cpu.gemm.compiled_linear import CompiledLinear
from engine.cpu.gemm.matrix_unit import TILE_INPUTS, is_permitted
from engine.cpu.gemm.packed_weight import PackedWeight, num_vectors, pack_into
from engine.cpu.gemm.products import BFLOAT16, CODES, FLOAT32, INT8, ON_UNIT, PAIRS, Product
from engine.cpu.gemm.tiles import LANES
from engine.huge_pages import HugePages
from engine.models.raw_weights import RawWeight


class ProjectionRecord(NamedTuple):
    """Fields of a PROJECTION record."""

    packed: int
    scales: int
    group_scales: int
    group_minima: int
    bias: int
    num_inputs: int
    num_outputs: int
    product: int
    preparation: int
    row_bytes: int


class RecordMemory:
    """Owner of all memory whose addresses records hold; it packs the weights of a model's projections."""

    def __init__(self, *, rounds_inputs: bool = True, pairs_inputs: bool = False) -> None:
        """Create the memory.

        Args:
            rounds_inputs: True to round inputs to int8 where weights are codes; otherwise those become float32.
            pairs_inputs: True to round inputs to bfloat16 where weights are, if the processor gains by it.
        """
        self._rounds_inputs = rounds_inputs
        # The matrix unit computes exact float32 at a higher rate than pairs, so its processors keep all inputs.
        self._pairs_inputs = pairs_inputs and pair_tiles.IS_THERE and not is_permitted()
        self._retained: list[torch.Tensor] = []
        self._pages = HugePages()

    def address(self, tensor: torch.Tensor) -> int:
        """Return a tensor's address, and keep the tensor alive."""
        assert tensor.is_contiguous()
        self._retained.append(tensor)
        return tensor.data_ptr()

    def linear(self, raw: RawWeight) -> CompiledLinear:
        """Return a projection with packed weights: as codes if they are quantized, in bfloat16 where that is exact."""
        if self._rounds_inputs and is_packable(raw):
            return self._of_codes(raw)
        if self._rounds_inputs and can_regroup(raw):
            return self._of_codes(regrouped(raw))
        weight = self._packed(raw.dequantized())
        is_half = weight.packed.dtype == torch.bfloat16
        is_paired = is_half and self._pairs_inputs
        kind = "bfloat16 times bfloat16" if is_paired else str(weight.packed.dtype).removeprefix("torch.")
        record = self._record(raw, weight, PAIRS if is_paired else _PRODUCTS[weight.packed.dtype])
        on_unit = self._record(raw, weight, ON_UNIT) if is_half and self.fits_unit(raw) else None
        return CompiledLinear(weight, raw.bias, record, owner=self, kind=kind, unit_record=on_unit)

    def projection(self, raw: RawWeight) -> ProjectionRecord:
        """Return a PROJECTION record of weights, float or int8, whose inputs stay float32."""
        weight = self._packed(raw)
        return self._record(raw, weight, _PRODUCTS[weight.packed.dtype])

    def clear(self) -> None:
        """Release all memory."""
        self._retained.clear()
        self._pages = HugePages()

    def fits_unit(self, raw: RawWeight) -> bool:
        """Return whether the matrix unit can compute the projection, and is there."""
        num_outputs, num_inputs = raw.weight.shape
        return is_permitted() and num_inputs % TILE_INPUTS == 0 and num_outputs % LANES == 0 and raw.fits_bfloat16()

    def _record(self, raw: RawWeight, weight: PackedWeight, product: Product) -> ProjectionRecord:
        scales, bias = (0 if found is None else self.address(found) for found in (raw.scales, raw.bias))
        num_outputs, num_inputs = weight.shape
        at = self.address(weight.packed)
        return ProjectionRecord(at, scales, 0, 0, bias, num_inputs, num_outputs, *product.fields(num_inputs))

    def _of_codes(self, raw: RawWeight) -> CompiledLinear:
        """Return weights that are multiplied as integers, by inputs that are rounded."""
        found = pack_codes(raw)
        num_outputs, num_inputs = found.shape
        # On huge pages, where the system has them.
        found = found._replace(codes=self._pages.copy(found.codes))
        numbers = found.codes, found.output_scales, found.scales, found.minima, raw.bias
        at, scales, group_scales, minima, bias = (0 if one is None else self.address(one) for one in numbers)
        fields = CODES[found.kind].fields(num_inputs)
        record = ProjectionRecord(at, scales, group_scales, minima, bias, num_inputs, num_outputs, *fields)
        return CompiledLinear(found, raw.bias, record, owner=self, kind=found.kind_name, rounds_inputs=True)

    def _packed(self, raw: RawWeight) -> PackedWeight:
        num_outputs, num_inputs = raw.weight.shape
        dtype = torch.bfloat16 if raw.fits_bfloat16() else raw.weight.dtype
        if dtype not in _PRODUCTS:
            dtype = torch.float32
        together = 2 if dtype == torch.bfloat16 else 1
        packed = self._pages.zeros(num_vectors(num_outputs), num_inputs // together, LANES, together, dtype=dtype)
        pack_into(packed, raw.weight)
        return PackedWeight(packed, raw.scales, num_outputs)


_PRODUCTS = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16, torch.int8: INT8}
"""Products whose inputs stay float32, by the dtype of the weights."""
