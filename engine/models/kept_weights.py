"""Weights as they were before projections laid them out, for who computes with them in another way."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, slots=True)
class KeptWeight:
    """One projection's."""

    weight: torch.Tensor
    """[out, in]."""
    bias: torch.Tensor | None


@dataclass(slots=True)
class KeptWeights:
    """Of one model's projections; as long as this lives they are in memory a second time."""

    _found: dict[int, tuple[object, KeptWeight]] = field(default_factory=dict)

    def put(self, linear: object, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Keep what a projection was made of."""
        self._found[id(linear)] = linear, KeptWeight(weight, bias)

    def of(self, linear: object) -> KeptWeight | None:
        """What it was made of; None where that is not known."""
        found = self._found.get(id(linear))
        return None if found is None else found[1]

    def fit_bfloat16(self) -> bool:
        """Whether they lose nothing in half the bytes, as those of checkpoints that were written so."""
        return all(torch.equal(kept.weight.bfloat16().float(), kept.weight) for _, kept in self._found.values())
