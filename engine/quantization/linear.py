"""Projections with quantized weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.models.linear import Linear
from engine.quantization.choice import FEW_ROWS
from engine.quantization.kernels import Kernel


class QuantizedLinear:
    """Projection with one kernel for few rows and possibly another for many."""

    def __init__(
        self, few: Kernel, many: Kernel, bias: torch.Tensor | None = None, order: torch.Tensor | None = None
    ) -> None:
        """Create the projection.

        Args:
            few: Kernel for few rows.
            many: Kernel for many rows.
            bias: Bias [out].
            order: int64 [in]: input of each of the kernels' columns; None: the original order.
        """
        self._few = few
        self._many = many
        self._bias = bias
        self._order = order

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute inputs @ weight.T (+ bias) to a new [T, out]."""
        values, scales = self._multiply(inputs)
        if scales is not None:
            values = values.mul_(scales)
        values = values.to(inputs.dtype)
        return values if self._bias is None else values.add_(self._bias)

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write inputs @ weight.T (+ bias) to `out`."""
        values, scales = self._multiply(inputs)
        if scales is None:
            out.copy_(values)
        elif out.dtype == values.dtype:
            torch.mul(values, scales, out=out)
        else:
            out.copy_(values.mul_(scales))
        if self._bias is not None:
            out.add_(self._bias)

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """Add inputs @ weight.T (+ bias) to `total`."""
        values, scales = self._multiply(inputs)
        if scales is None:
            total.add_(values)
        elif total.dtype == values.dtype:
            total.addcmul_(values, scales)
        else:
            total.add_(values.mul_(scales))
        if self._bias is not None:
            total.add_(self._bias)

    def _multiply(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self._order is not None:
            inputs = inputs.index_select(1, self._order)
        return (self._few if inputs.shape[0] <= FEW_ROWS else self._many).multiply(inputs)


class StackedLinear:
    """Projections of the same inputs that cannot share one weight, with their outputs side by side."""

    def __init__(self, parts: Sequence[tuple[int, Linear]]) -> None:
        """Create the projection from pairs of (number of outputs, projection)."""
        self._parts = list(parts)

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute all outputs to a new tensor."""
        return torch.cat([part.apply(inputs) for _, part in self._parts], 1)

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write all outputs to `out`."""
        start = 0
        for size, part in self._parts:
            part.into(inputs, out[:, start : start + size])
            start += size

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """Add all outputs to `total`."""
        start = 0
        for size, part in self._parts:
            part.add_to(total[:, start : start + size], inputs)
            start += size
