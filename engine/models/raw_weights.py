"""Unpacked weights of projections, for kernels that use a layout of their own."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, slots=True)
class RawWeight:
    """Weights of one projection before their layout changes."""

    weight: torch.Tensor
    """float32 or int8 [out, in]."""
    scales: torch.Tensor | None
    """float32 [out]: scale of each output of an int8 weight."""
    bias: torch.Tensor | None
    rounds_inputs: bool = False
    """True if each input row is rounded to int8 as well."""

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

    def of(self, linear: object) -> RawWeight | None:
        """Return the weights of a projection; None if they are not stored."""
        found = self._found.get(id(linear))
        return None if found is None else found[1]
