"""Unpacked weights of projections, for kernels that use a layout of their own."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, slots=True)
class RawWeight:
    """Weights of one projection before their layout changes."""

    weight: torch.Tensor
    """float32 or int8 [out, in]; or unsigned codes of groups of inputs, uint8 [out, in]."""
    scales: torch.Tensor | None
    """float32 [out]: scale of each output of an int8 weight."""
    bias: torch.Tensor | None
    rounds_inputs: bool = False
    """True if each input row is rounded to int8 as well."""
    group_scales: torch.Tensor | None = None
    """float32 [out, groups]: scales of unsigned codes, weight = (code - zero) * scale."""
    group_zeros: torch.Tensor | None = None
    """float32 [out, groups]: zeros in units of codes."""
    bits: int = 8
    """Number of bits of an unsigned code."""

    def fits_bfloat16(self) -> bool:
        """Return whether bfloat16 represents the weights exactly, as in checkpoints that were saved in it."""
        is_float = self.weight.dtype == torch.float32
        return is_float and torch.equal(self.weight.bfloat16().float(), self.weight)


@dataclass(slots=True)
class RawWeights:
    """Store of the unpacked weights of one model's projections; it doubles their memory while it lives."""

    _found: dict[int, tuple[object, RawWeight]] = field(default_factory=dict)

    def put(
        self,
        linear: object,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        scales: torch.Tensor | None = None,
        *,
        rounds_inputs: bool = False,
    ) -> None:
        """Store the weights of a projection."""
        self._found[id(linear)] = linear, RawWeight(weight, scales, bias, rounds_inputs)

    def put_groups(
        self,
        linear: object,
        codes: torch.Tensor,
        scales: torch.Tensor,
        zeros: torch.Tensor,
        bits: int,
        bias: torch.Tensor | None,
    ) -> None:
        """Store unsigned codes [out, in] of a projection with scales and zeros [out, groups]."""
        raw = RawWeight(codes, None, bias, group_scales=scales, group_zeros=zeros, bits=bits)
        self._found[id(linear)] = linear, raw

    def of(self, linear: object) -> RawWeight | None:
        """Return the weights of a projection; None if they are not stored."""
        found = self._found.get(id(linear))
        return None if found is None else found[1]
