"""Construction of projections from weights according to the quantization setting."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.config import Quantization
from engine.models.linear import Linear, make_linear
from engine.models.raw_weights import RawWeight, WeightPacker
from engine.quantization.choice import KernelTable
from engine.quantization.float8 import FLOAT8, check_float8, quantize_outputs
from engine.quantization.kernels import DYNAMIC_INT8, WEIGHT_ONLY_GROUPS, WEIGHT_ONLY_INT8, KernelKind, Weight
from engine.quantization.linear import QuantizedLinear, StackedLinear
from engine.quantization.plain_kernels import HALF_ROWS, WHOLE_ROWS, fits_half
from engine.quantization.triton_kernels import TRITON_GROUPS, TRITON_INT8
from engine.quantization.weights import ChannelWeight, GroupWeight, PlainWeight, quantize_channels, quantize_groups

_GROUP_SIZES = (64, 32, 128)
"""Group sizes in order of preference; the first one that divides the inputs is used."""
_DENSE_BITS = 8
_MIN_NUMBERS = 1 << 14
"""Minimum number of weights for quantization; smaller ones gain nothing."""
_PLAIN = (HALF_ROWS, WHOLE_ROWS)
_INT8 = WEIGHT_ONLY_INT8 + TRITON_INT8
_GROUPS = WEIGHT_ONLY_GROUPS + TRITON_GROUPS


class LinearMaker:
    """Factory of one model's projections.

    With int4 the vocabulary projection is int8: it is a tenth of a small model's bytes but a fifth of the loss.
    Embeddings stay in the model's dtype, because a lookup reads only one row.
    """

    def __init__(self, quantization: Quantization, table: KernelTable, packer: WeightPacker | None = None) -> None:
        """Create the factory.

        Args:
            quantization: Form of the weights.
            table: Choice of kernels.
            packer: Packer of the weights for compiled steps; None: kernels of torch multiply by them.
        """
        self._quantization = quantization
        self._table = table
        self._packer = packer

    def dense(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """Return a projection for a weight [out, in], which it takes over. Raises QuantizationError."""
        if self._quantization == "none" or weight.numel() < _MIN_NUMBERS:
            return self._plain(weight, bias)
        if self._quantization == "fp8":
            check_float8(weight.device)
            return self._linear(FLOAT8, quantize_outputs(weight), bias)
        group_size = next((size for size in _GROUP_SIZES if weight.shape[1] % size == 0), None)
        if self._quantization == "int4" and group_size is not None:
            return self._linear(_GROUPS, quantize_groups(weight, group_size), bias)
        # On a GPU a step is bound by reading weights, so rounding activations gains nothing.
        is_dynamic = self._quantization == "int8_dynamic" and not weight.is_cuda
        return self._channels(quantize_channels(weight), bias, is_dynamic=is_dynamic)

    def head(self, weight: torch.Tensor) -> Linear:
        """Return the vocabulary projection; the weight may be the embedding's and stays unchanged."""
        if self._quantization != "int4" or weight.numel() < _MIN_NUMBERS:
            return self.dense(weight)
        return self._channels(quantize_channels(weight), None)

    def grouped(self, parts: Sequence[GroupWeight], bias: torch.Tensor | None, dtype: torch.dtype) -> Linear:
        """Return projections of the same inputs from a quantized checkpoint as one.

        Args:
            parts: Weights of the projections.
            bias: Bias of all outputs.
            dtype: Dtype of the model's activations.
        """
        first = parts[0]
        if len(parts) > 1 and all(_fit_together(first, part) for part in parts):
            columns = zip(*((part.codes, part.scales, part.zeros) for part in parts), strict=True)
            codes, scales, zeros = (torch.cat(tensors) for tensors in columns)
            return self._grouped(GroupWeight(codes, scales, zeros, first.bits, first.order), bias, dtype)
        if len(parts) == 1:
            return self._grouped(first, bias, dtype)
        linears: list[tuple[int, Linear]] = []
        start = 0
        for part in parts:
            size = part.shape[0]
            part_bias = None if bias is None else bias[start : start + size]
            linears.append((size, self._grouped(part, part_bias, dtype)))
            start += size
        return StackedLinear(linears)

    def _channels(self, weight: ChannelWeight, bias: torch.Tensor | None, *, is_dynamic: bool = False) -> Linear:
        """Return a projection with int8 codes and one scale per output; `is_dynamic` rounds inputs too."""
        if self._packer is not None:
            return self._packer.linear(RawWeight(weight.codes, weight.scales, bias, is_dynamic))
        return self._linear(DYNAMIC_INT8 if is_dynamic else _INT8, weight, bias)

    def _plain(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
        """Return an unquantized projection, stored in fewer bytes where that is exact and faster."""
        if self._packer is not None:
            return self._packer.linear(RawWeight(weight, None, bias))
        if weight.numel() >= _MIN_NUMBERS and fits_half(weight):
            plain = PlainWeight(weight)
            if HALF_ROWS.can_run(plain) and self._table.choose(_PLAIN, plain).few is HALF_ROWS:
                return self._linear(_PLAIN, plain, bias)
        return make_linear(weight, bias)

    def _grouped(self, weight: GroupWeight, bias: torch.Tensor | None, dtype: torch.dtype) -> Linear:
        if weight.bits >= _DENSE_BITS:
            # No fast product of 8-bit groups exists; dequantized once they cost memory, but no time and no accuracy.
            return make_linear(weight.dequantize().to(dtype), bias)
        return self._linear(_GROUPS, weight, bias)

    def _linear(self, kinds: Sequence[KernelKind[Weight]], weight: Weight, bias: torch.Tensor | None) -> Linear:
        choice = self._table.choose(kinds, weight)
        few = choice.few.build(weight, self._table.scratch)
        many = few if choice.many is choice.few else choice.many.build(weight, self._table.scratch)
        return QuantizedLinear(few, many, bias, weight.order if isinstance(weight, GroupWeight) else None)


def _fit_together(one: GroupWeight, other: GroupWeight) -> bool:
    if one.group_size != other.group_size or one.bits != other.bits:
        return False
    if one.order is None or other.order is None:
        return one.order is other.order
    return torch.equal(one.order, other.order)
