"""CPU kernels for float32 weights whose numbers fit float16.

Most checkpoints are bfloat16 or float16, so float32 only adds zeros to their numbers. With few rows a product takes as
long as reading its weight, and float16 halves the bytes to read. Activations and sums are float32, so the results
differ from those of a float32 weight only by the order of summation.
"""

from __future__ import annotations

import torch

from engine.quantization.kernels import KernelKind, UnpackBuffer
from engine.quantization.weights import PlainWeight

_ROUNDING = 2.0**-24
"""Relative error of one rounding to float32."""


class FbgemmHalfRows:
    """FBGEMM's product of float32 rows and a float16 weight."""

    def __init__(self, weight: PlainWeight, scratch: UnpackBuffer) -> None:
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight.codes, None)
        overload = torch.ops.quantized.linear_dynamic_fp16.default
        # An overload with a packed weight first searches its arguments for overrides in Python, a sixth of a small
        # product's time. The inner operator skips that search.
        self._product = getattr(overload, "_op", overload)

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Multiply inputs [T, in]: float32 [T, out]."""
        return self._product(inputs, self._packed), None


class WholeRows:
    """oneDNN's product of float32 rows and a weight in its packed order."""

    def __init__(self, weight: PlainWeight, scratch: UnpackBuffer) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight.default(weight.codes, None)
        self._product = torch.ops.mkldnn._linear_pointwise.default

    def multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Multiply inputs [T, in]: float32 [T, out]."""
        return self._product(inputs, self._packed, None, "none", [], None), None


def fits_half(weight: torch.Tensor) -> bool:
    """Return whether float16 holds a float32 weight with a total error below that of one float32 rounding."""
    if weight.dtype != torch.float32 or weight.device.type != "cpu":
        return False
    error = weight.half().float().sub_(weight)
    return bool(error.norm() <= _ROUNDING * weight.norm())


def _has_half_rows(weight: PlainWeight) -> bool:
    has_ops = hasattr(torch.ops.quantized, "linear_dynamic_fp16")
    return has_ops and torch.backends.quantized.engine in ("x86", "fbgemm")


def _has_whole_rows(weight: PlainWeight) -> bool:
    return torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


HALF_ROWS: KernelKind[PlainWeight] = KernelKind("half_rows", _has_half_rows, FbgemmHalfRows)
WHOLE_ROWS: KernelKind[PlainWeight] = KernelKind("whole_rows", _has_whole_rows, WholeRows)
