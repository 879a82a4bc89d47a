"""Projection that is quantized after it has seen its inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.models.linear import DenseLinear, Linear
from engine.quantization.calibrated_groups import InputMoments


class CalibratedLinear:
    """Dense projection that records its inputs' moments until `settle`, and a quantized projection from then on."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, *, is_sensitive: bool = False) -> None:
        """Take over a weight [out, in]; one that is sensitive may get more bits than others."""
        self.weight = weight
        self.bias = bias
        self.is_sensitive = is_sensitive
        self.moments = InputMoments(weight.shape[1])
        self._linear: Linear = DenseLinear(weight, bias)
        self._is_settled = False

    @property
    def settled(self) -> Linear:
        """Quantized projection; the dense one before `settle`."""
        return self._linear

    def settle(self, quantize: Callable[[torch.Tensor, InputMoments], Linear]) -> None:
        """Replace the dense weight by a quantized projection, and release it."""
        self._linear = quantize(self.weight, self.moments)
        self._is_settled = True
        self.weight, self.moments = torch.empty(0, 0), InputMoments(0)

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute inputs @ weight.T (+ bias) to a new [T, out]."""
        self._see(inputs)
        return self._linear.apply(inputs)

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write inputs @ weight.T (+ bias) to `out`."""
        self._see(inputs)
        self._linear.into(inputs, out)

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """Add inputs @ weight.T (+ bias) to `total`."""
        self._see(inputs)
        self._linear.add_to(total, inputs)

    def _see(self, inputs: torch.Tensor) -> None:
        if not self._is_settled:
            self.moments.add(inputs)
