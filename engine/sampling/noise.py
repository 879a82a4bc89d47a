"""Stateless random numbers: each depends only on (seed, position, token id).

A generator with a state would give a row other numbers when the batch changes, or when a verification computes
several positions at once. Here every number is a hash of its coordinates (SplitMix64's output function over a
counter). So the same seed gives the same text in any batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.sampling.transfer import to_device

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_LARGEST_UNIFORM = 1.0 - 2.0**-24
_SMALLEST_UNIFORM = 2.0**-64


def stream_key(seed: int, position: int) -> int:
    """Return the 64-bit key of the numbers for one position of one sequence."""
    return _mix(_mix(seed & _MASK) + (position + 1) * _GAMMA)


def exponential_noise(keys: Sequence[int], token_ids: torch.Tensor) -> torch.Tensor:
    """Return unit-rate exponential numbers, float32 like token_ids int64 [N, K]; row n is drawn from keys[n].

    They keep full relative precision near zero, where the comparison of tokens is decided.
    """
    signed_keys = to_device([_signed(key) for key in keys], torch.int64, token_ids.device)
    state = token_ids.add(1).mul_(_signed(_GAMMA)).add_(signed_keys.unsqueeze(1))
    state = _xor_shift(state, 30).mul_(_signed(_MIX_1))
    state = _xor_shift(state, 27).mul_(_signed(_MIX_2))
    bits = _shift_right(_xor_shift(state, 31), 1)
    uniform = bits.to(torch.float32).mul_(2.0**-63).clamp_(_SMALLEST_UNIFORM, _LARGEST_UNIFORM)
    return uniform.neg_().log1p_().neg_()


def _mix(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def _signed(value: int) -> int:
    value &= _MASK
    return value - 2**64 if value >= 2**63 else value


def _shift_right(values: torch.Tensor, count: int) -> torch.Tensor:
    """Shift logically; torch's own shift keeps the sign."""
    return values.bitwise_right_shift(count).bitwise_and_(2 ** (64 - count) - 1)


def _xor_shift(values: torch.Tensor, count: int) -> torch.Tensor:
    return values.bitwise_xor_(_shift_right(values, count))
