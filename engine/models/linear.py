"""Projections: their interface, the dense form, and a packed form that is fast on a CPU."""

from __future__ import annotations

from typing import Protocol

import torch
from torch.nn import functional

_SMALL_WEIGHT = 1 << 20
"""Largest float32 weight, in numbers, that fits a core's cache, where a dense product with one row is faster."""


class Linear(Protocol):
    """Projection interface; quantized and tensor-parallel projections implement it too."""

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute inputs @ weight.T (+ bias): [T, in] to a new [T, out]."""
        ...

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write inputs @ weight.T (+ bias) to `out` [T, out]."""
        ...

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """Add inputs @ weight.T (+ bias) to `total` [T, out]."""
        ...


class DenseLinear:
    """Projection with a dense weight [out, in]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._weight = weight
        self._transposed = weight.t()
        self._bias = bias

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute inputs @ weight.T (+ bias) to a new [T, out]."""
        return functional.linear(inputs, self._weight, self._bias)

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write inputs @ weight.T (+ bias) to `out`."""
        if self._bias is None:
            torch.mm(inputs, self._transposed, out=out)
        else:
            torch.addmm(self._bias, inputs, self._transposed, out=out)

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """Add inputs @ weight.T (+ bias) to `total`."""
        total.addmm_(inputs, self._transposed)
        if self._bias is not None:
            total.add_(self._bias)


class PackedLinear:
    """Projection with weights in the layout of oneDNN's kernels.

    Against `torch.mm` on float32 it takes a half to a quarter of the time for two rows and more. For one row the same
    holds once the weight exceeds the cache; a small float32 weight also stays dense, for steps of one row.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        is_small = weight.numel() <= _SMALL_WEIGHT and weight.dtype == torch.float32
        # Column-major order is faster for a product with a single row.
        self._single_row = DenseLinear(weight.t().contiguous().t(), bias) if is_small else None
        self._packed = torch.ops.mkldnn._reorder_linear_weight.default(weight, None)
        self._product = torch.ops.mkldnn._linear_pointwise.default
        self._bias = bias

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute inputs @ weight.T (+ bias) to a new [T, out]."""
        if self._single_row is not None and inputs.shape[0] == 1:
            return self._single_row.apply(inputs)
        return self._multiply(inputs)

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write inputs @ weight.T (+ bias) to `out`."""
        if self._single_row is not None and inputs.shape[0] == 1:
            self._single_row.into(inputs, out)
        else:
            out.copy_(self._multiply(inputs))

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """Add inputs @ weight.T (+ bias) to `total`."""
        if self._single_row is not None and inputs.shape[0] == 1:
            self._single_row.add_to(total, inputs)
        else:
            total.add_(self._multiply(inputs))

    def _multiply(self, inputs: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = self._product(inputs, self._packed, self._bias, "none", [], None)
        return product


def can_pack(weight: torch.Tensor) -> bool:
    """Return whether this build of torch, this processor and this dtype support packed products."""
    if weight.device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    is_fast_bfloat16 = weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32 or is_fast_bfloat16


def make_linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    """Return the fastest projection for a weight [out, in] on its device; it takes ownership of the weight."""
    return PackedLinear(weight, bias) if can_pack(weight) else DenseLinear(weight, bias)
