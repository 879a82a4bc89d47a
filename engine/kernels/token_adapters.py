"""Kernels of adapters' products for steps of few tokens: every token names its adapter (Punica, arXiv 2310.18547).

The first kernel multiplies each token's input with its adapter's matrix down, the second adds the product with the
matrix up to the projection's output. Sums are float32 and their order is fixed. Adapters may have different ranks and
change different modules. Which ones is read in the kernels, so a captured step serves any adapters.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_ROWS = 4
"""Rows of a matrix down that one program reads."""
_BLOCK_IN = 512
_BLOCK_OUT = 128


@triton.jit
def multiply_down(
    low_ptr,
    inputs_ptr,
    weights_ptr,
    table_ptr,
    adapters_ptr,
    input_stride,
    weight_stride,
    IN_SIZE: tl.constexpr,
    MAX_RANK: tl.constexpr,
    NUM_MODULES: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_IN: tl.constexpr,
):
    """Compute some numbers of one token's first product for one module; float32 [T, NUM_MODULES, MAX_RANK]."""
    token = tl.program_id(0).to(tl.int64)
    module = tl.program_id(1)
    adapter = tl.load(adapters_ptr + token).to(tl.int64)
    if adapter < 0:
        return
    entry = table_ptr + (adapter * NUM_MODULES + module) * 3
    rank = tl.load(entry)
    rows = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    is_row = rows < rank
    if tl.program_id(2) * ROWS >= rank:
        return
    down = weights_ptr + adapter * weight_stride + (tl.load(entry + 1) + rows[:, None]) * IN_SIZE
    total = tl.zeros((ROWS, BLOCK_IN), tl.float32)
    for start in range(0, IN_SIZE, BLOCK_IN):
        columns = start + tl.arange(0, BLOCK_IN)
        is_inside = columns < IN_SIZE
        inputs = tl.load(inputs_ptr + token * input_stride + columns, mask=is_inside, other=0.0).to(tl.float32)
        weights = tl.load(down + columns[None, :], mask=is_row[:, None] & is_inside[None, :], other=0.0)
        total += weights.to(tl.float32) * inputs[None, :]
    at = low_ptr + (token * NUM_MODULES + module) * MAX_RANK + rows
    tl.store(at, tl.sum(total, axis=1), mask=is_row)


@triton.jit
def multiply_up(
    out_ptr,
    low_ptr,
    weights_ptr,
    table_ptr,
    spans_ptr,
    adapters_ptr,
    out_stride,
    weight_stride,
    MAX_RANK: tl.constexpr,
    RANK_PADDED: tl.constexpr,
    NUM_MODULES: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
):
    """Add one token's second product for some outputs of one module."""
    token = tl.program_id(0).to(tl.int64)
    module = tl.program_id(1)
    adapter = tl.load(adapters_ptr + token).to(tl.int64)
    if adapter < 0:
        return
    entry = table_ptr + (adapter * NUM_MODULES + module) * 3
    rank = tl.load(entry)
    size = tl.load(spans_ptr + module * 2 + 1)
    if (rank == 0) | (tl.program_id(2) * BLOCK_OUT >= size):
        return
    rows = tl.arange(0, RANK_PADDED)
    columns = tl.program_id(2) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    is_row = rows < rank
    is_inside = columns < size
    low = tl.load(low_ptr + (token * NUM_MODULES + module) * MAX_RANK + rows, mask=is_row, other=0.0)
    up = weights_ptr + adapter * weight_stride + tl.load(entry + 2) + rows[:, None] * size + columns[None, :]
    weights = tl.load(up, mask=is_row[:, None] & is_inside[None, :], other=0.0).to(tl.float32)
    at = out_ptr + token * out_stride + tl.load(spans_ptr + module * 2) + columns
    total = tl.load(at, mask=is_inside, other=0.0).to(tl.float32) + tl.sum(weights * low[:, None], axis=0)
    tl.store(at, total.to(out_ptr.dtype.element_ty), mask=is_inside)


def add_token_products(
    out: torch.Tensor,
    inputs: torch.Tensor,
    adapters: torch.Tensor,
    weights: torch.Tensor,
    table: torch.Tensor,
    spans: torch.Tensor,
    *,
    max_rank: int,
    max_size: int,
) -> None:
    """Add each token's product B (A x) to its outputs.

    Args:
        out: [T, out], changed in place; adjacent numbers of a row are adjacent in memory.
        inputs: [T, in], likewise.
        adapters: int32 [T]: index of each token's adapter; -1: none.
        weights: [adapters, numbers]: weights of each adapter.
        table: int64 [adapters, modules, 3]: rank (0: the module stays as it is), first row of the matrix down, and
            place of the matrix up among the adapter's numbers.
        spans: int64 [modules, 2]: first output and number of outputs of each module.
        max_rank: Largest rank.
        max_size: Largest number of outputs of a module.
    """
    num_tokens, in_size = inputs.shape
    num_modules = table.shape[1]
    low = torch.empty(num_tokens, num_modules, max_rank, dtype=torch.float32, device=inputs.device)
    multiply_down[num_tokens, num_modules, triton.cdiv(max_rank, _ROWS)](
        low,
        inputs,
        weights,
        table,
        adapters,
        inputs.stride(0),
        weights.stride(0),
        IN_SIZE=in_size,
        MAX_RANK=max_rank,
        NUM_MODULES=num_modules,
        ROWS=_ROWS,
        BLOCK_IN=_BLOCK_IN,
    )
    multiply_up[num_tokens, num_modules, triton.cdiv(max_size, _BLOCK_OUT)](
        out,
        low,
        weights,
        table,
        spans,
        adapters,
        out.stride(0),
        weights.stride(0),
        MAX_RANK=max_rank,
        RANK_PADDED=triton.next_power_of_2(max_rank),
        NUM_MODULES=num_modules,
        BLOCK_OUT=_BLOCK_OUT,
    )
