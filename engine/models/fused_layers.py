"""What stands between a decoder's matrix products, each as one kernel instead of a chain of small ones.

A decode step of a large model reads its weights once; beside that, what costs is the number of kernels. RMSNorm takes
the addition before or behind it along, and a gated activation its product. Arithmetic is float32 throughout, rounded
once when it is stored. Tested through Triton's interpreter; not measured yet on a card.
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
    """One row of x / sqrt(mean(x²) + eps) * weight; SUM "before": total += x comes first and is what is normed,
    "after": the result is added to total and written nowhere else."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, SIZE_PADDED)
    is_column = columns < SIZE
    values = tl.load(input_ptr + row * input_stride + columns, mask=is_column, other=0.0).to(tl.float32)
    total_at = total_ptr + row * total_stride + columns
    if SUM == "before":
        summed = tl.load(total_at, mask=is_column, other=0.0).to(tl.float32) + values
        # What is normed is what the next layer will find, rounding included.
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
    """A stretch of one row: gate = activation(gate) * up, silu or gelu by its tanh form."""
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
    # Below that the result is 0 either way, and exp would overflow.
    activated = values / (1.0 + tl.exp(-tl.maximum(slope, -80.0)))
    tl.store(gate_ptr + at, (activated * up).to(gate_ptr.dtype.element_ty), mask=is_column)


class FusedRMSNorm(RMSNorm):
    """RMSNorm in one kernel, together with the addition before or behind it. Rows [T, size] may be strided."""

    def __init__(self, weight: torch.Tensor, eps: float, offset: float = 0.0) -> None:
        super().__init__(weight, eps, offset)
        self.weight = weight.float() + offset if offset else weight
        self.eps = eps

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write the normalised rows to `out`, which may be `inputs` itself."""
        if inputs.dim() != 2 or self.weight.dim() != 1:
            super().into(inputs, out)
            return
        self._launch(inputs, out, inputs, "none")

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """total += the normalised rows."""
        self._launch(inputs, inputs, total, "after")

    def after_add(self, total: torch.Tensor, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """total += inputs, then out = normalised total; `out` may be `inputs`."""
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
    """activation(gate) * up left in `gate_half` [T, size], and returned. Raises ValueError unless strides agree."""
    num_rows, size = gate_half.shape
    if gate_half.stride(1) != 1 or gate_half.stride() != up_half.stride():
        raise ValueError("gate and up must be halves of one buffer")
    if num_rows:
        grid = (num_rows, triton.cdiv(size, _GATE_BLOCK))
        is_silu = activation == "silu"
        gate[grid](gate_half, up_half, gate_half.stride(0), SIZE=size, BLOCK=_GATE_BLOCK, IS_SILU=is_silu)
    return gate_half
