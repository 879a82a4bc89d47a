"""Construction of projections from weights according to the quantization setting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import torch

from engine.config import Quantization
from engine.models.linear import Linear, make_linear
from engine.models.raw_weights import RawWeight, WeightPacker
from engine.quantization.calibrated_groups import MOST_INPUTS, InputMoments, quantize_calibrated
from engine.quantization.calibrated_linear import CalibratedLinear
from engine.quantization.choice import KernelTable
from engine.quantization.float8 import FLOAT8, check_float8, quantize_outputs
from engine.quantization.join import join_any, join_outputs
from engine.quantization.kernels import DYNAMIC_INT8, WEIGHT_ONLY_GROUPS, WEIGHT_ONLY_INT8, KernelKind, Weight
from engine.quantization.linear import QuantizedLinear, StackedLinear
from engine.quantization.mxfp4 import MXFP4
from engine.quantization.plain_kernels import HALF_ROWS, WHOLE_ROWS, fits_half
from engine.quantization.triton_kernels import TRITON_GROUPS, TRITON_INT8
from engine.quantization.weights import (
    MXFP4_GROUP,
    ChannelWeight,
    GroupWeight,
    Mxfp4Weight,
    PlainWeight,
    PublishedWeight,
    quantize_channels,
    quantize_groups,
)

_GROUP_SIZE = 32
"""Number of inputs of an int4 group, as in the common 4-bit formats."""
_DENSE_BITS = 8
_MIN_NUMBERS = 1 << 14
"""Minimum number of weights for quantization; smaller ones gain nothing."""
_MOST_LOSS = 1e-4
"""Mean square error of a sensitive projection's outputs, over their mean square, above which int4 becomes int8.

Weights that were rounded to 4 bits in groups of 32 before, as in GGUF's Q4_1, have none.
"""
_PLAIN = (HALF_ROWS, WHOLE_ROWS)
_INT8 = WEIGHT_ONLY_INT8 + TRITON_INT8
_GROUPS = WEIGHT_ONLY_GROUPS + TRITON_GROUPS


class LinearMaker:
    """Factory of one model's projections.

    With int4 the vocabulary projection is int8: it is a tenth of a small model's bytes but a fifth of the loss. So is
    a sensitive projection whose outputs would lose too much, which the calibration measures.
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
        self.is_calibrating = False
        """True while int4 projections are to see inputs before `settle` quantizes them."""
        self._waiting: list[CalibratedLinear] = []
        self.num_calibrated = 0
        """Number of projections that `settle` has quantized."""
        self.num_retained = 0
        """Number of these that are int8."""
        self.num_packed: Counter[str] = Counter()
        """Number of the checkpoint's own quantized tensors by the form that they are kept in."""

    def dense(self, weight: torch.Tensor, bias: torch.Tensor | None = None, *, is_sensitive: bool = False) -> Linear:
        """Return a projection for a weight [out, in], which it takes over.

        Args:
            weight: Weight, of any floating dtype.
            bias: Bias of the outputs.
            is_sensitive: True for projections whose errors cost a model more than their share of its weights.

        Raises:
            QuantizationError: The quantization setting needs another device.
        """
        if self._quantization == "none" or weight.numel() < _MIN_NUMBERS:
            return self._plain(weight, bias)
        if self._quantization == "fp8":
            check_float8(weight.device)
            return self._linear(FLOAT8, quantize_outputs(weight), bias)
        if self._quantization == "int4" and weight.shape[1] % _GROUP_SIZE == 0:
            if self.is_calibrating and weight.shape[1] <= MOST_INPUTS:
                # A packer's weights are in the checkpoint's own dtype, and its model computes in float32.
                own = weight if self._packer is None else weight.float()
                self._waiting.append(CalibratedLinear(own, bias, is_sensitive=is_sensitive))
                return self._waiting[-1]
            return self._own_groups(weight, bias)
        # On a GPU a step is bound by reading weights, so rounding activations gains nothing.
        is_dynamic = self._quantization == "int8_dynamic" and not weight.is_cuda
        return self._channels(quantize_channels(weight), bias, is_dynamic=is_dynamic)

    def _own_groups(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
        """Return a projection quantized to int4 by its weights alone."""
        found = quantize_groups(weight, _GROUP_SIZE, has_whole_zeros=weight.is_cuda)
        return self._grouped(found, bias, weight.dtype)

    def settle(self) -> None:
        """Quantize the projections made since the last call, by the inputs that they have seen."""
        while self._waiting:
            linear = self._waiting.pop()
            linear.settle(partial(self._calibrated, linear))

    def head(self, weight: torch.Tensor) -> Linear:
        """Return the vocabulary projection; the weight may be the embedding's and stays unchanged."""
        if self._quantization != "int4" or weight.numel() < _MIN_NUMBERS:
            return self.dense(weight)
        return self._channels(quantize_channels(weight), None)

    def published(
        self,
        parts: Sequence[PublishedWeight],
        bias: torch.Tensor | None,
        dtype: torch.dtype,
        *,
        rounds_inputs: bool = False,
    ) -> Linear:
        """Return projections of the same inputs from a quantized checkpoint as one.

        Args:
            parts: Weights of the projections.
            bias: Bias of all outputs.
            dtype: Dtype of the model's activations.
            rounds_inputs: True if products with int8 weights round their inputs to int8 too.

        Raises:
            QuantizationError: The quantization setting needs another device.
        """
        self.num_packed.update(_form(part, is_packed=self._packer is not None) for part in parts)
        joined = join_outputs(parts)
        if joined is None and self._packer is not None:  # which packs one weight only
            joined = join_any(parts)
        if joined is not None:
            return self._published(joined, bias, dtype, rounds_inputs=rounds_inputs)
        linears: list[tuple[int, Linear]] = []
        start = 0
        for part in parts:
            size = part.shape[0]
            part_bias = None if bias is None else bias[start : start + size]
            linears.append((size, self._published(part, part_bias, dtype, rounds_inputs=rounds_inputs)))
            start += size
        return StackedLinear(linears)

    def _calibrated(self, linear: CalibratedLinear, weight: torch.Tensor, moments: InputMoments) -> Linear:
        found = quantize_calibrated(weight, _GROUP_SIZE, moments)
        self.num_calibrated += 1
        if linear.is_sensitive and moments.error(found.dequantize(), weight) > _MOST_LOSS:
            self.num_retained += 1
            return self._channels(quantize_channels(weight), linear.bias)
        return self._grouped(found, linear.bias, weight.dtype)

    def _channels(self, weight: ChannelWeight, bias: torch.Tensor | None, *, is_dynamic: bool = False) -> Linear:
        """Return a projection with int8 codes and one scale per output; `is_dynamic` rounds inputs too."""
        if self._packer is not None:
            return self._packer.linear(RawWeight(weight.codes, weight.scales, bias))
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

    def _published(
        self, weight: PublishedWeight, bias: torch.Tensor | None, dtype: torch.dtype, *, rounds_inputs: bool
    ) -> Linear:
        if isinstance(weight, Mxfp4Weight):
            if self._packer is None:
                return self._linear(MXFP4, weight, bias)
            weight = weight.in_groups()  # a packer knows whole codes alone
        if isinstance(weight, GroupWeight):
            return self._grouped(weight, bias, dtype)
        if isinstance(weight, PlainWeight):
            return self.dense(weight.codes.to(dtype), bias)
        if weight.codes.dtype == torch.int8:
            return self._channels(weight, bias, is_dynamic=rounds_inputs and not weight.codes.is_cuda)
        if weight.codes.is_cuda:
            return self._linear(FLOAT8, weight, bias)
        # On a CPU fp8 products cost time without a benefit.
        return self.dense(weight.dequantize().to(dtype), bias)

    def _grouped(self, weight: GroupWeight, bias: torch.Tensor | None, dtype: torch.dtype) -> Linear:
        if self._packer is not None:
            numbers = weight.scales, weight.zeros
            return self._packer.linear(RawWeight(weight.codes, None, bias, *numbers, weight.bits, weight.order))
        if weight.bits >= _DENSE_BITS:
            # No fast product of 8-bit groups exists; dequantized once they cost memory, but no time and no accuracy.
            return self._plain(weight.dequantize().to(dtype), bias)
        return self._linear(_GROUPS, weight, bias)

    def _linear(self, kinds: Sequence[KernelKind[Weight]], weight: Weight, bias: torch.Tensor | None) -> Linear:
        choice = self._table.choose(kinds, weight)
        few = choice.few.build(weight, self._table.scratch)
        many = few if choice.many is choice.few else choice.many.build(weight, self._table.scratch)
        return QuantizedLinear(few, many, bias, weight.order if isinstance(weight, GroupWeight) else None)


def _form(weight: PublishedWeight, *, is_packed: bool) -> str:
    """Return the words of the log for the form in which a weight of the checkpoint is kept."""
    if isinstance(weight, GroupWeight) and (is_packed or weight.bits < _DENSE_BITS):
        return f"with {weight.bits}-bit codes in groups of {weight.group_size}"
    if isinstance(weight, Mxfp4Weight):
        return f"with 8-bit codes in groups of {MXFP4_GROUP}" if is_packed else "in MXFP4"
    if isinstance(weight, ChannelWeight) and (weight.codes.dtype == torch.int8 or weight.codes.is_cuda):
        return "with 8-bit codes"
    return "dequantized"
