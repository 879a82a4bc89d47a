"""Token sampling in three kernels, with random numbers from (seed, position, token id) and none stored.

The torch form makes a dozen passes over [rows, vocabulary], most of them over 64-bit integers; these kernels read every
logit twice. Numbers and arithmetic are those of `engine.sampling.noise`, up to the last bits of the logarithms. So the
tokens equal those of a CPU unless two scores are that close. Tests run it through Triton's interpreter; no measurement
on a GPU exists yet.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from engine.sampling.transfer import to_device

_BLOCK = 1024
_SIGN = 1 << 63


@triton.jit
def find_largest(values_ptr, ids_ptr, logits_ptr, stride, vocab_size, num_blocks, BLOCK: tl.constexpr):
    """Find the largest logit of one block of a row and its lowest token id; NaN if the block has a NaN."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    logits = tl.load(logits_ptr + row * stride + ids, mask=ids < vocab_size, other=float("-inf"))
    is_nan = logits != logits
    largest = tl.max(tl.where(is_nan, float("-inf"), logits), axis=0)
    lowest = tl.min(tl.where(logits == largest, ids, vocab_size), axis=0)
    has_nan = tl.max(is_nan.to(tl.int32), axis=0) > 0
    tl.store(values_ptr + row * num_blocks + block, tl.where(has_nan, float("nan"), largest))
    tl.store(ids_ptr + row * num_blocks + block, lowest)


@triton.jit
def _xor_shift(state, COUNT: tl.constexpr):
    return state ^ (state >> COUNT)


@triton.jit
def _exponential(key, ids):
    """Return unit-rate exponential numbers of tokens: SplitMix64 over a counter (see engine.sampling.noise)."""
    state = (ids + 1).to(tl.uint64) * 0x9E3779B97F4A7C15 + key
    state = _xor_shift(state, 30) * 0xBF58476D1CE4E5B9
    state = _xor_shift(state, 27) * 0x94D049BB133111EB
    bits = (_xor_shift(state, 31) >> 1).to(tl.int64)
    uniform = bits.to(tl.float32) * 1.0842021724855044e-19
    uniform = tl.minimum(tl.maximum(uniform, 5.421010862427522e-20), 0.9999999403953552)
    # -log1p(-u) without log1p: the quotient compensates for the rounding of 1 - u (Kahan).
    left = 1.0 - uniform
    is_tiny = left == 1.0
    exact = tl.log(tl.where(is_tiny, 0.5, left)) * uniform / tl.where(is_tiny, -1.0, left - 1.0)
    return tl.where(is_tiny, uniform, exact)


@triton.jit
def race(
    best_ptr,
    best_ids_ptr,
    logits_ptr,
    values_ptr,
    keys_ptr,
    temperatures_ptr,
    stride,
    vocab_size,
    num_blocks,
    BLOCK: tl.constexpr,
    BLOCKS_PADDED: tl.constexpr,
):
    """Find the token with the largest perturbed logit in one block of a row (Gumbel-max sampling).

    `values_ptr` holds the largest logit of each block of the row.
    """
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    temperature = tl.load(temperatures_ptr + row)
    if temperature <= 0.0:
        return
    blocks = tl.arange(0, BLOCKS_PADDED)
    values = tl.load(values_ptr + row * num_blocks + blocks, mask=blocks < num_blocks, other=float("-inf"))
    largest = tl.max(tl.where(values == values, values, float("-inf")), axis=0)
    # Avoids infinity minus infinity in a row without any allowed token.
    largest = tl.where(largest > float("-inf"), largest, 0.0)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    is_token = ids < vocab_size
    logits = tl.load(logits_ptr + row * stride + ids, mask=is_token, other=float("-inf"))
    # Differences to the largest logit: a tiny temperature turns the others into -inf but never into NaN.
    tempered = (logits - largest) / temperature
    key = tl.load(keys_ptr + row).to(tl.uint64, bitcast=True)
    result = tl.where(is_token, tempered - tl.log(_exponential(key, ids.to(tl.int64))), float("-inf"))
    best = tl.max(result, axis=0)
    tl.store(best_ptr + row * num_blocks + block, best)
    tl.store(best_ids_ptr + row * num_blocks + block, tl.min(tl.where(result == best, ids, vocab_size), axis=0))


@triton.jit
def pick(
    token_ids_ptr,
    is_invalid_ptr,
    values_ptr,
    ids_ptr,
    best_ptr,
    best_ids_ptr,
    temperatures_ptr,
    vocab_size,
    num_blocks,
    BLOCKS_PADDED: tl.constexpr,
):
    """Choose one row's token from its blocks: the largest perturbed logit, or the largest logit at temperature 0."""
    row = tl.program_id(0).to(tl.int64)
    blocks = tl.arange(0, BLOCKS_PADDED)
    is_block = blocks < num_blocks
    at = row * num_blocks + blocks
    values = tl.load(values_ptr + at, mask=is_block, other=float("-inf"))
    is_nan = values != values
    has_nan = tl.max(is_nan.to(tl.int32), axis=0) > 0
    largest = tl.max(tl.where(is_nan, float("-inf"), values), axis=0)
    is_drawn = tl.load(temperatures_ptr + row) > 0.0
    scores = values
    ids = tl.load(ids_ptr + at, mask=is_block, other=0)
    if is_drawn:
        scores = tl.load(best_ptr + at, mask=is_block, other=float("-inf"))
        ids = tl.load(best_ids_ptr + at, mask=is_block, other=0)
    winner = tl.max(tl.where(scores != scores, float("-inf"), scores), axis=0)
    chosen = tl.min(tl.where(is_block & (scores == winner), ids, vocab_size), axis=0)
    tl.store(token_ids_ptr + row, tl.minimum(chosen, vocab_size - 1).to(tl.int64))
    tl.store(is_invalid_ptr + row, (has_nan | (largest == float("-inf"))).to(tl.int8))


class TritonChooser:
    """Token chooser on the device; its tokens equal those of the torch form up to rounding."""

    def choose(
        self, logits: torch.Tensor, keys: Sequence[int], temperatures: Sequence[float]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose a token for each row of logits.

        Args:
            logits: float32 [N, vocab].
            keys: Random stream of each row.
            temperatures: Temperature of each row; 0: the largest logit.

        Returns:
            Token ids int64 [N], and bool [N]: True where the logits have a NaN or no finite number.
        """
        num_rows, vocab_size = logits.shape
        num_blocks = triton.cdiv(vocab_size, _BLOCK)
        blocks_padded = triton.next_power_of_2(num_blocks)
        device = logits.device
        values = torch.empty(2, num_rows, num_blocks, dtype=torch.float32, device=device)
        ids = torch.empty(2, num_rows, num_blocks, dtype=torch.int32, device=device)
        heat = to_device(temperatures, torch.float32, device)
        grid = (num_rows, num_blocks)
        find_largest[grid](values[0], ids[0], logits, logits.stride(0), vocab_size, num_blocks, BLOCK=_BLOCK)
        if any(temperatures):
            signed = [key - 2 * _SIGN if key >= _SIGN else key for key in keys]
            streams = to_device(signed, torch.int64, device)
            race[grid](
                values[1],
                ids[1],
                logits,
                values[0],
                streams,
                heat,
                logits.stride(0),
                vocab_size,
                num_blocks,
                BLOCK=_BLOCK,
                BLOCKS_PADDED=blocks_padded,
            )
        token_ids = torch.empty(num_rows, dtype=torch.int64, device=device)
        is_invalid = torch.empty(num_rows, dtype=torch.int8, device=device)
        pick[(num_rows,)](
            token_ids,
            is_invalid,
            values[0],
            ids[0],
            values[1],
            ids[1],
            heat,
            vocab_size,
            num_blocks,
            BLOCKS_PADDED=blocks_padded,
        )
        return token_ids, is_invalid.bool()
