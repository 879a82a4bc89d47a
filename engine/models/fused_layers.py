"""Fused kernels for the operations between a decoder's matrix products.

A decode step of a large model reads its weights once; the number of kernels is the main other cost. RMSNorm is fused
with the addition before or after it, and a gated activation with its product. Arithmetic is float32, rounded once at
the store. Tests run it through Triton's interpreter; no measurement on a GPU exists yet.
"""

from __future__ import annotations

from typing import Literal

import torch
import triton
import triton.language as tl

from engine.models.config.config import Activation
from engine.models.layers import RMSNorm

_GATE_BLOCK = 1024
_Sum = Literal["none", "before", "after"]


@triton.jit
def normalise(
    out_ptr,
    input_ptr,
    total_ptr,
    weight_ptr,
    out_stride,
    input_stride,
    total_stride,
    eps,
    SIZE: tl.constexpr,
    SIZE_PADDED: tl.constexpr,
    SUM: tl.constexpr,
):
    """Compute one row of x / sqrt(mean(x²) + eps) * weight.

    With SUM "before", total += x comes first and the total is normalized. With "after", the result is added to
    total and written nowhere else.
    """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, SIZE_PADDED)
    is_column = columns < SIZE
    values = tl.load(input_ptr + row * input_stride + columns, mask=is_column, other=0.0).to(tl.float32)
    total_at = total_ptr + row * total_stride + columns
    if SUM == "before":
        summed = tl.load(total_at, mask=is_column, other=0.0).to(tl.float32) + values
        # The next layer reads the rounded total, so the norm uses it too.
        rounded = summed.to(total_ptr.dtype.element_ty)
        tl.store(total_at, rounded, mask=is_column)
        values = rounded.to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=is_column, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, axis=0) / SIZE + eps)
    normed = values * scale * weight
    if SUM == "after":
        summed = tl.load(total_at, mask=is_column, other=0.0).to(tl.float32) + normed
        tl.store(total_at, summed.to(total_ptr.dtype.element_ty), mask=is_column)
    else:
        tl.store(out_ptr + row * out_stride + columns, normed.to(out_ptr.dtype.element_ty), mask=is_column)


@triton.jit
def gate(gate_ptr, up_ptr, stride, SIZE: tl.constexpr, BLOCK: tl.constexpr, IS_SILU: tl.constexpr):
    """Compute gate = activation(gate) * up for one block of a row; SiLU, or GELU in its tanh form."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_column = columns < SIZE
    at = row * stride + columns
    values = tl.load(gate_ptr + at, mask=is_column, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + at, mask=is_column, other=0.0).to(tl.float32)
    if IS_SILU:
        slope = values
    else:
        # x * (1 + tanh(z)) / 2 is x / (1 + exp(-2z)).
        slope = 1.5957691216057308 * (values + 0.044715 * values * values * values)
    # Below -80 the result is 0 in either case, and exp would overflow.
    activated = values / (1.0 + tl.exp(-tl.maximum(slope, -80.0)))
    tl.store(gate_ptr + at, (activated * up).to(gate_ptr.dtype.element_ty), mask=is_column)


class FusedRMSNorm(RMSNorm):
    """RMSNorm in one kernel, fused with the addition before or after it. Rows [T, size] may be strided."""

    def __init__(self, weight: torch.Tensor, eps: float, offset: float = 0.0) -> None:
        super().__init__(weight, eps, offset)
        self.weight = weight.float() + offset if offset else weight
        self.eps = eps

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write the normalized rows to `out`, which may be `inputs` itself."""
        if inputs.dim() != 2 or self.weight.dim() != 1:
            super().into(inputs, out)
            return
        self._launch(inputs, out, inputs, "none")

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """Add the normalized rows to `total`."""
        self._launch(inputs, inputs, total, "after")

    def after_add(self, total: torch.Tensor, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Add `inputs` to `total`, then write the normalized total to `out`, which may be `inputs`."""
        self._launch(inputs, out, total, "before")

    def _launch(self, inputs: torch.Tensor, out: torch.Tensor, total: torch.Tensor, add: _Sum) -> None:
        num_rows, size = inputs.shape
        if not num_rows:
            return
        size_padded = triton.next_power_of_2(size)
        normalise[(num_rows,)](
            out,
            inputs,
            total,
            self.weight,
            out.stride(0),
            inputs.stride(0),
            total.stride(0),
            self.eps,
            SIZE=size,
            SIZE_PADDED=size_padded,
            SUM=add,
            num_warps=min(16, max(4, size_padded // 512)),
        )


def gate_fused(gate_half: torch.Tensor, up_half: torch.Tensor, activation: Activation) -> torch.Tensor:
    """Compute activation(gate) * up in `gate_half` [T, size] and return it.

    Raises:
        ValueError: The strides of the two halves differ.
    """
    num_rows, size = gate_half.shape
    if gate_half.stride(1) != 1 or gate_half.stride() != up_half.stride():
        raise ValueError("gate and up must be halves of one buffer")
    if num_rows:
        grid = (num_rows, triton.cdiv(size, _GATE_BLOCK))
        is_silu = activation == "silu"
        gate[grid](gate_half, up_half, gate_half.stride(0), SIZE=size, BLOCK=_GATE_BLOCK, IS_SILU=is_silu)
    return gate_half
