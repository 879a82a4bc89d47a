"""Layers of a decoder: small callables over tensors that write into given buffers.

At batch size one on a CPU a step is hundreds of tiny operations, so their number and the Python between them count.
Projections are fused, outputs go to buffers that live as long as the model, and views are made once per batch size.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from engine.models.config.rope import RopeConfig

_INITIAL_POSITIONS = 4096
_POSITIONS_TOGETHER = 512


class RMSNorm:
    """Root mean square norm over the last axis: x / sqrt(mean(x²) + eps) * (weight + offset).

    The weight broadcasts from the right.
    """

    def __init__(self, weight: torch.Tensor, eps: float, offset: float = 0.0) -> None:
        self._size = (weight.shape[-1],)
        self._eps = eps
        self._is_cpu_float32 = weight.dtype == torch.float32 and weight.device.type == "cpu"
        # The sum stays in float32: next to the offset a narrower dtype would round the weight away.
        weight = weight.float() + offset if offset else weight
        self.weight = weight
        # x / sqrt(mean(x²) + eps) = sqrt(size) * x / hypot(‖x‖, sqrt(eps * size)): four cheap operations, while
        # torch's own CPU rms_norm is a longer chain of more expensive ones.
        self._scaled_weight = weight * math.sqrt(self._size[0])
        self._floor = torch.tensor(math.sqrt(eps * self._size[0]), dtype=torch.float32, device=weight.device)

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write the normalized inputs to `out`, which may be `inputs` itself."""
        if self._is_cpu_float32:
            lengths = torch.linalg.vector_norm(inputs, 2, -1, True)
            torch.div(inputs, lengths.hypot_(self._floor), out=out).mul_(self._scaled_weight)
        else:
            out.copy_(functional.rms_norm(inputs, self._size, None, self._eps)).mul_(self.weight)


class HeadGroupNorm:
    """Two norms: one over all query heads together and one over all key heads."""

    def __init__(self, queries: RMSNorm, keys: RMSNorm, num_heads: int) -> None:
        self.queries = queries
        self.keys = keys
        self._num_heads = num_heads

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write the normalized heads [T, heads + kv_heads, head_dim] to `out`, which may be `inputs` itself."""
        split = self._num_heads
        for norm, span in ((self.queries, slice(split)), (self.keys, slice(split, None))):
            norm.into(_side_by_side(inputs[:, span]), _side_by_side(out[:, span]))


def _side_by_side(heads: torch.Tensor) -> torch.Tensor:
    """Return a view [T, heads * head_dim] of the same memory."""
    return heads.view(heads.shape[0], -1)


class Rotary:
    """Rotary position embedding: rotates adjacent pairs of a head's numbers by an angle proportional to the position.

    Hugging Face checkpoints rotate the two halves of a head against each other. The loader interleaves the halves of
    query and key rows, so that one complex multiplication rotates all heads in place.
    """

    def __init__(self, config: RopeConfig, head_dim: int, device: torch.device) -> None:
        self._config = config
        self._head_dim = head_dim
        self._device = device
        self._table = torch.empty(0, head_dim // 2, dtype=torch.complex64, device=device)

    def at(self, positions: torch.Tensor, num_positions: int) -> torch.Tensor:
        """Return the rotations [T, 1, head_dim / 2] of positions [T], all below `num_positions`."""
        return self.table(num_positions).index_select(0, positions).unsqueeze(1)

    def table(self, num_positions: int) -> torch.Tensor:
        """Return the rotations [N, head_dim / 2] of at least `num_positions` positions."""
        if num_positions > self._table.shape[0]:
            self.reserve(num_positions)
        return self._table

    def reserve(self, num_positions: int) -> None:
        """Extend the table to `num_positions` positions if it is shorter."""
        if num_positions > self._table.shape[0]:
            size = max(_INITIAL_POSITIONS, 2 ** (num_positions - 1).bit_length())
            table = torch.empty(size, self._table.shape[1], dtype=torch.complex64, device=self._device)
            known = self._table.shape[0]
            table[:known].copy_(self._table)
            # A few at a time: what is computed on the way takes four times the memory.
            for start in range(known, size, _POSITIONS_TOGETHER):
                part = table[start : start + _POSITIONS_TOGETHER]
                part.copy_(self._config.rotations(self._head_dim, part.shape[0], start))
            self._table = table

    @staticmethod
    def rotate(heads: torch.Tensor, rotations: torch.Tensor) -> None:
        """Rotate [T, heads, head_dim] in place; float32 heads come as complex64 [T, heads, head_dim / 2]."""
        if heads.dtype == torch.complex64:
            heads.mul_(rotations)
        else:
            pairs = torch.view_as_complex(heads.float().view(*heads.shape[:-1], -1, 2))
            heads.copy_(torch.view_as_real(pairs.mul_(rotations)).flatten(-2))


def interleave_halves(heads: torch.Tensor, axis: int, num_rotated: int) -> torch.Tensor:
    """Interleave the halves of each head along `axis`, as `Rotary` reads them: 0 1 2 3 4 5 → 0 3 1 4 2 5.

    Numbers behind the first `num_rotated` do not rotate and stay at the end.
    """
    turning, still = heads.tensor_split([num_rotated], axis)
    halves = turning.tensor_split(2, axis)
    return torch.cat([torch.stack(halves, axis + 1).flatten(axis, axis + 1), still], axis)
