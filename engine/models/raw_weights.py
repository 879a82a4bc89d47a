"""Weights as they are before projections lay them out, for who computes with them in another way."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, slots=True)
class RawWeight:
    """One projection's."""

    weight: torch.Tensor
    """float32 or int8 [out, in]."""
    scales: torch.Tensor | None
    """float32 [out], one for each output of an int8 weight."""
    bias: torch.Tensor | None
    rounds_inputs: bool = False
    """Whether each row of the inputs is rounded to int8, too."""

    def fits_bfloat16(self) -> bool:
        """Whether it loses nothing in half the bytes, as those of checkpoints that were written so."""
        is_float = self.weight.dtype == torch.float32
        return is_float and torch.equal(self.weight.bfloat16().float(), self.weight)


@dataclass(slots=True)
class RawWeights:
    """Of one model's projections; as long as this lives they are in memory a second time."""

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
        """Keep what a projection is made of."""
        self._found[id(linear)] = linear, RawWeight(weight, scales, bias, rounds_inputs)

    def of(self, linear: object) -> RawWeight | None:
        """What it is made of; None where that is not known."""
        found = self._found.get(id(linear))
        return None if found is None else found[1]
