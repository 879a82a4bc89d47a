"""Projection by packed weights: compiled steps read its record, and torch multiplies by rows unpacked for it."""

from __future__ import annotations

from typing import Protocol

import torch

from engine.cpu.gemm.code_rows import CODE_GROUP

_SCRATCH_NUMBERS = 1 << 22
"""Maximum number of weights that are unpacked at a time; 16 MiB in float32."""
_ROWS_MULTIPLE = 64
"""Unpacked rows begin at multiples of this, which is a multiple of every register's lanes."""
_INT8_MAX = 127.0
_LEAST_LENGTH = 1e-30


class WeightRows(Protocol):
    """Packed weights of one projection."""

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        ...

    def rows(self, start: int, end: int) -> torch.Tensor:
        """Return the weights of outputs from `start`, a multiple of 64, to `end` as float32 [end - start, in]."""
        ...


class CompiledLinear:
    """Projection whose only copy of the weights is the packed one."""

    def __init__(
        self,
        weight: WeightRows,
        bias: torch.Tensor | None,
        record: tuple[int, ...],
        *,
        owner: object,
        kind: str,
        unit_record: tuple[int, ...] | None = None,
        rounds_inputs: bool = False,
    ) -> None:
        """Create the projection.

        Args:
            weight: Packed weights.
            bias: float32 [out].
            record: Fields of the PROJECTION record that compiled steps read.
            owner: Object that keeps alive what the record's addresses lead to.
            kind: Name of the products, for people.
            unit_record: Record of the products on the matrix unit; None: it cannot compute the projection.
            rounds_inputs: True if inputs are rounded to int8 in groups.
        """
        self.weight = weight
        self.record = record
        self.kind = kind
        self.unit_record = unit_record
        self.rounds_inputs = rounds_inputs
        self._bias = bias
        self._owner = owner

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute inputs @ weight.T (+ bias) to a new [T, out]."""
        out = torch.empty(inputs.shape[0], self.weight.shape[0])
        self.into(inputs, out)
        return out

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write inputs @ weight.T (+ bias) to `out` [T, out]."""
        if self.rounds_inputs:
            inputs = _rounded(inputs)
        num_outputs, num_inputs = self.weight.shape
        num_rows = max(1, _SCRATCH_NUMBERS // (num_inputs * _ROWS_MULTIPLE)) * _ROWS_MULTIPLE
        for start in range(0, num_outputs, num_rows):
            end = min(start + num_rows, num_outputs)
            out[:, start:end].copy_(torch.mm(inputs, self.weight.rows(start, end).t()))
        if self._bias is not None:
            out.add_(self._bias)

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """Add inputs @ weight.T (+ bias) to `total` [T, out]."""
        total.add_(self.apply(inputs))


def _rounded(inputs: torch.Tensor) -> torch.Tensor:
    """Return rows rounded to the int8 codes that compiled products multiply by, times the scale of their group."""
    groups = inputs.view(inputs.shape[0], -1, CODE_GROUP)
    top = groups.abs().amax(2, keepdim=True).clamp_(min=_LEAST_LENGTH)
    return groups.mul(_INT8_MAX / top).round_().mul_(top / _INT8_MAX).flatten(1)
