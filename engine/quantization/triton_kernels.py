"""Weight-only products on CUDA by Triton kernels, imported when the first weight is packed for them."""

from __future__ import annotations

import torch

from engine.quantization.kernels import KernelKind, UnpackBuffer
from engine.quantization.weights import ChannelWeight, GroupWeight

_INT4_GROUP = 32
"""Unit of the group size: groups must be multiples of a slice of a tile."""
_COMPUTED = (torch.bfloat16, torch.float16)


class TritonInt4:
    """Product of int4 group weights, as bfloat16 numbers, and bfloat16 or float16 rows; others become bfloat16."""

    def __init__(self, weight: GroupWeight, scratch: UnpackBuffer) -> None:
        from engine.kernels.weight_only import num_segments, pack_int4, pack_scales

        self._packed = pack_int4(weight.codes)
        self._scales = pack_scales(weight.scales, weight.zeros)
        self._group_size = weight.group_size
        self._segments = num_segments(*weight.shape, _processors(weight.codes.device), is_int4=True)

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Multiply inputs [T, in]: float32 [T, out]."""
        from engine.kernels.weight_only import int4_product

        rows, size = _computed(inputs), self._group_size
        return int4_product(rows, self._packed, self._scales, group_size=size, segments=self._segments), None


class TritonBytes:
    """Product of int8 or fp8 weights with a scale for each output and bfloat16 or float16 rows."""

    def __init__(self, weight: ChannelWeight, scratch: UnpackBuffer) -> None:
        from engine.kernels.weight_only import num_segments

        self._codes = weight.codes.contiguous()
        self._scales = weight.scales
        self._segments = num_segments(*weight.shape, _processors(weight.codes.device))

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Multiply inputs [T, in]: float32 [T, out]."""
        from engine.kernels.weight_only import byte_product

        return byte_product(_computed(inputs), self._codes, self._scales, segments=self._segments), None


def can_run_int4(weight: GroupWeight) -> bool:
    """Return whether the int4 kernel supports the shape and the device."""
    return weight.codes.is_cuda and weight.bits == 4 and weight.group_size % _INT4_GROUP == 0


def can_run_bytes(weight: ChannelWeight) -> bool:
    """Return whether the kernel compiles for the weight's device; fp8 needs compute capability 8.9."""
    if not weight.codes.is_cuda:
        return False
    return weight.codes.dtype == torch.int8 or torch.cuda.get_device_capability(weight.codes.device) >= (8, 9)


def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _computed(inputs: torch.Tensor) -> torch.Tensor:
    # Triton's interpreter has no bfloat16 product, so float32 stays unchanged there.
    inputs = inputs if inputs.dtype in _COMPUTED or not inputs.is_cuda else inputs.bfloat16()
    return inputs if inputs.stride(1) == 1 else inputs.contiguous()


TRITON_INT8: tuple[KernelKind[ChannelWeight], ...] = (KernelKind("triton_int8", can_run_bytes, TritonBytes),)
TRITON_FLOAT8: tuple[KernelKind[ChannelWeight], ...] = (KernelKind("triton_fp8", can_run_bytes, TritonBytes),)
TRITON_GROUPS: tuple[KernelKind[GroupWeight], ...] = (KernelKind("triton_int4", can_run_int4, TritonInt4),)
