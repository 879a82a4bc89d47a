"""CPU kernels for quantized weights; `choice` measures which one a shape uses.

Kernels of one *arithmetic* compute the same numbers and can replace one another:

- weight-only int8 and int4: activations are rounded to bfloat16, sums are float32;
- dynamic int8: each row of the activations becomes int8 with its own scale (its largest magnitude / 127), sums are
  exact integers. A row's result therefore depends neither on the other rows nor on the kernel. On processors without
  an instruction for it (VNNI, AMX), libraries add pairs of products in 16 bits, which saturates for large codes.
  Such a kernel is not used there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch.nn import functional

from engine.quantization.weights import INT8_MAX, ChannelWeight, GroupWeight, Mxfp4Weight, PlainWeight

_PACKED_GROUP_SIZES = (32, 64, 128, 256)
_PACKED_OUTPUTS = 16
_PACKED_INPUTS = 16
_MAX_LENGTH = float("inf")
_LARGEST_CODES = (32, 64)

Weight_contra = TypeVar("Weight_contra", PlainWeight, ChannelWeight, GroupWeight, Mxfp4Weight, contravariant=True)
Weight = TypeVar("Weight", PlainWeight, ChannelWeight, GroupWeight, Mxfp4Weight)


class Kernel(Protocol):
    """Kernel for one weight."""

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Multiply inputs [T, in].

        Returns:
            Values [T, out] in a floating dtype, and scales [T, 1] that the caller applies, or None.
        """
        ...


class UnpackBuffer:
    """Buffer for weights that are unpacked for one product, shared by all projections."""

    def __init__(self) -> None:
        self._buffer = torch.empty(0, dtype=torch.bfloat16)

    def take(self, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
        """Return a bfloat16 tensor of this shape with the content of the last use."""
        size = 1
        for length in shape:
            size *= length
        if self._buffer.numel() < size or self._buffer.device != device:
            # An ordinary tensor can be written both in and out of inference mode.
            with torch.inference_mode(False):
                self._buffer = torch.empty(size, dtype=torch.bfloat16, device=device)
        return self._buffer[:size].view(shape)


@dataclass(frozen=True, slots=True)
class KernelKind(Generic[Weight_contra]):
    """Kernel of an arithmetic: its name, its condition and its constructor."""

    name: str
    can_run: Callable[[Weight_contra], bool]
    build: Callable[[Weight_contra, UnpackBuffer], Kernel]


class PackedInt8:
    """torch's kernel for bfloat16 activations and unpacked int8 weights."""

    def __init__(self, weight: ChannelWeight, scratch: UnpackBuffer) -> None:
        self._codes = weight.codes
        self._scales = weight.scales.bfloat16()

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Multiply inputs [T, in]: bfloat16 [T, out]."""
        return torch._weight_int8pack_mm(inputs.bfloat16(), self._codes, self._scales), None


class UnpackedCodes:
    """Product with int8 or fp8 codes converted to bfloat16, which is exact, for each call; then scales are applied."""

    def __init__(self, weight: ChannelWeight, scratch: UnpackBuffer) -> None:
        self._codes = weight.codes
        self._scales = weight.scales
        self._scratch = scratch

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Multiply inputs [T, in]: float32 [T, out]."""
        codes = self._scratch.take(self._codes.shape, self._codes.device).copy_(self._codes)
        return functional.linear(inputs.bfloat16(), codes).float().mul_(self._scales), None


class PackedInt4:
    """torch's kernel for bfloat16 activations and int4 weights in its packed order."""

    def __init__(self, weight: GroupWeight, scratch: UnpackBuffer) -> None:
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(weight.codes.int(), 1)
        # The kernel computes (code - 8) * scale + offset.
        offsets = weight.scales * (8 - weight.zeros)
        self._scales = torch.stack((weight.scales, offsets), 2).transpose(0, 1).contiguous().bfloat16()
        self._group_size = weight.group_size

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Multiply inputs [T, in]: bfloat16 [T, out]."""
        product = torch.ops.aten._weight_int4pack_mm_for_cpu
        return product(inputs.bfloat16(), self._packed, self._group_size, self._scales), None


class UnpackedGroups:
    """Product with group weights of any bits and group size, converted to bfloat16 for each call."""

    def __init__(self, weight: GroupWeight, scratch: UnpackBuffer) -> None:
        self._shape = weight.shape
        self._has_nibbles = weight.bits == 4 and weight.shape[1] % 2 == 0
        self._codes = weight.codes[:, ::2] | weight.codes[:, 1::2] << 4 if self._has_nibbles else weight.codes
        self._zeros = weight.zeros.unsqueeze(2).bfloat16()
        self._scales = weight.scales.unsqueeze(2).bfloat16()
        self._scratch = scratch

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Multiply inputs [T, in]: bfloat16 [T, out]."""
        weight = self._scratch.take(self._shape, self._codes.device)
        if self._has_nibbles:
            weight[:, ::2].copy_(self._codes & 15)
            weight[:, 1::2].copy_(self._codes >> 4)
        else:
            weight.copy_(self._codes)
        weight.view(*self._scales.shape[:2], -1).sub_(self._zeros).mul_(self._scales)
        return functional.linear(inputs.bfloat16(), weight), None


class FbgemmRows:
    """FBGEMM's product of quantized rows, which are divided by their largest magnitude to share one scale."""

    def __init__(self, weight: ChannelWeight, scratch: UnpackBuffer) -> None:
        zeros = torch.zeros_like(weight.scales, dtype=torch.int64)
        with warnings.catch_warnings():
            # torch deprecates quantized tensors, but FBGEMM accepts existing codes in no other form.
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
            quantized = torch._make_per_channel_quantized_tensor(weight.codes, weight.scales.double(), zeros, 0)
        self._packed = torch.ops.quantized.linear_prepack(quantized, None)
        self._product = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Multiply inputs [T, in]: float32 [T, out] of rows scaled to 1, and their scales."""
        inputs = inputs.float()
        lengths = _row_lengths(inputs)
        return self._product(inputs.div(lengths), 1 / INT8_MAX, INT8_MAX + 1, self._packed), lengths


class OnednnRows:
    """oneDNN's product of quantized rows."""

    _FORM: tuple[Any, ...] = (1.0, 0, torch.float32, "none", [], "none")
    """Options of the result: float32 without a post-operation."""

    def __init__(self, weight: ChannelWeight, scratch: UnpackBuffer) -> None:
        self._packed = torch.ops.onednn.qlinear_prepack(weight.codes, None)
        self._scales = weight.scales
        self._zeros = torch.zeros_like(weight.scales, dtype=torch.int64)
        self._product = torch.ops.onednn.qlinear_pointwise.default

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Multiply inputs [T, in]: float32 [T, out] of rows scaled to 1, and their scales."""
        lengths = _row_lengths(inputs.float())
        codes = inputs.div(lengths).mul_(INT8_MAX).round_().add_(INT8_MAX + 1).to(torch.uint8)
        weight = (self._packed, self._scales, self._zeros, None)
        rows: torch.Tensor = self._product(codes, 1 / INT8_MAX, INT8_MAX + 1, *weight, *self._FORM)
        return rows, lengths


class IntegerRows:
    """torch's product of int8 matrices: sometimes the slowest of the three, but available everywhere."""

    def __init__(self, weight: ChannelWeight, scratch: UnpackBuffer) -> None:
        self._codes = weight.codes.t()
        self._scales = weight.scales / INT8_MAX

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Multiply inputs [T, in]: float32 [T, out] of rows scaled to 1, and their scales."""
        lengths = _row_lengths(inputs.float())
        codes = inputs.div(lengths).mul_(INT8_MAX).round_().to(torch.int8)
        product: torch.Tensor = torch._int_mm(codes, self._codes).float()
        return product.mul_(self._scales), lengths


def _row_lengths(inputs: torch.Tensor) -> torch.Tensor:
    """Return the largest magnitude of each row [T, 1], never 0."""
    lengths: torch.Tensor = torch.linalg.vector_norm(inputs, _MAX_LENGTH, -1, True)
    return lengths.clamp_(min=1e-30)


def _is_cpu(weight: ChannelWeight) -> bool:
    return weight.codes.device.type == "cpu"


def _has_fbgemm(weight: ChannelWeight) -> bool:
    has_form = hasattr(torch, "_make_per_channel_quantized_tensor")
    is_there = _is_cpu(weight) and has_form and torch.backends.quantized.engine in ("x86", "fbgemm")
    return is_there and _is_exact(FbgemmRows)


def _has_onednn(weight: ChannelWeight) -> bool:
    is_there = _is_cpu(weight) and "onednn" in torch.backends.quantized.supported_engines
    return is_there and _is_exact(OnednnRows)


@cache
def _is_exact(kind: type[FbgemmRows] | type[OnednnRows]) -> bool:
    """Return whether the kernel's sums are exact for the largest codes on this processor."""
    num_outputs, num_inputs = _LARGEST_CODES
    weight = ChannelWeight(torch.full(_LARGEST_CODES, INT8_MAX, dtype=torch.int8), torch.ones(num_outputs))
    kernel = kind(weight, UnpackBuffer())
    expected = torch.tensor(float(INT8_MAX * num_inputs))
    products = (kernel.multiply(torch.ones(num_rows, num_inputs))[0] for num_rows in (1, num_outputs))
    return all(torch.allclose(product, expected) for product in products)


def _can_pack_int8(weight: ChannelWeight) -> bool:
    """Return whether torch's kernel supports the shape; it reads whole vectors, past the end of a row otherwise."""
    return _is_cpu(weight) and weight.shape[1] % _PACKED_INPUTS == 0


def _can_pack_int4(weight: GroupWeight) -> bool:
    """Return whether torch's int4 kernel supports the shape."""
    is_shaped = weight.shape[0] % _PACKED_OUTPUTS == 0 and weight.group_size in _PACKED_GROUP_SIZES
    return is_shaped and weight.bits == 4 and weight.codes.device.type == "cpu"


def _always(weight: object) -> bool:
    return True


WEIGHT_ONLY_INT8: tuple[KernelKind[ChannelWeight], ...] = (
    KernelKind("packed_int8", _can_pack_int8, PackedInt8),
    KernelKind("unpacked_int8", _always, UnpackedCodes),
)
DYNAMIC_INT8: tuple[KernelKind[ChannelWeight], ...] = (
    KernelKind("fbgemm_rows", _has_fbgemm, FbgemmRows),
    KernelKind("onednn_rows", _has_onednn, OnednnRows),
    KernelKind("integer_rows", _always, IntegerRows),
)
WEIGHT_ONLY_GROUPS: tuple[KernelKind[GroupWeight], ...] = (
    KernelKind("packed_int4", _can_pack_int4, PackedInt4),
    KernelKind("unpacked_groups", _always, UnpackedGroups),
)
