"""Int4 weights that fit the inputs a projection sees: later columns make up for the rounding of earlier ones.

The method is GPTQ (Frantar et al. 2022). With H the second moments of the inputs, rounding column j by the error e
changes the outputs least if each later column k changes by -e * U[j, k] / U[j, j], where U is the upper Cholesky factor
of H's inverse. Each group's scale and minimum are fitted when its first column is reached.
"""

from __future__ import annotations

import torch

from engine.quantization.weights import INT4_MAX, GroupWeight, fit_groups, quantize_groups

MOST_INPUTS = 4096
"""Largest number of inputs whose second moments are kept; the time grows with the square."""
_DAMPING = 1.0
"""Share of each input's mean square that is added to it: few tokens show more correlation than there is.

Chosen by the errors that another text sees: they are least from 0.6 to 2 for all kinds of projections.
"""
_LEAST_SQUARE = 1e-5
"""Share of the mean over all inputs that is added too, for inputs that the tokens leave nearly unseen."""


class InputMoments:
    """Second moments of a projection's inputs, Σ x xᵀ."""

    def __init__(self, num_inputs: int) -> None:
        self._sums = torch.zeros(num_inputs, num_inputs)
        self.num_tokens = 0

    def add(self, inputs: torch.Tensor) -> None:
        """Add inputs [T, in]."""
        inputs = inputs.float()
        self._sums.addmm_(inputs.t(), inputs)
        self.num_tokens += inputs.shape[0]

    def error(self, found: torch.Tensor, weight: torch.Tensor) -> float:
        """Return the mean square error of the outputs [out, in] `found` instead of `weight`, over their mean square."""
        return float(self._squares(found - weight) / self._squares(weight).clamp_min(torch.finfo(torch.float32).tiny))

    def _squares(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the sum of the squares of all outputs."""
        weight = weight.float()
        return (weight @ self._sums).mul_(weight).sum()

    def damped(self) -> torch.Tensor:
        """Return the mean moments, float32 [in, in], positive definite."""
        moments = self._sums / max(1, self.num_tokens)
        least = moments.diagonal().mean() * _LEAST_SQUARE + torch.finfo(torch.float32).tiny
        moments.diagonal().mul_(1 + _DAMPING).add_(least)
        return moments


def quantize_calibrated(weight: torch.Tensor, group_size: int, moments: InputMoments) -> GroupWeight:
    """Quantize a weight [out, in] to int4 groups with the least error of the outputs for such inputs."""
    damped = moments.damped()
    importance = damped.diagonal().contiguous()
    upper, failed = _upper_factor(damped)
    if failed or moments.num_tokens == 0:
        # Inputs that never vary have no inverse; their sizes still say which errors matter.
        return quantize_groups(weight, group_size, importance if moments.num_tokens else None)
    left = weight.float().t().contiguous()
    codes = torch.empty_like(left, dtype=torch.uint8)
    scales, minima = [], []
    for first in range(0, left.shape[0], group_size):
        behind = first + group_size
        block = left[first:behind]
        scale, minimum = fit_groups(block.t(), importance[first:behind].unsqueeze(0))
        errors = _round_block(block, scale, minimum, upper[first:behind, first:behind], codes[first:behind])
        left[behind:].addmm_(upper[first:behind, behind:].t(), errors, alpha=-1.0)
        scales.append(scale)
        minima.append(minimum)
    of_groups, least = torch.stack(scales, 1), torch.stack(minima, 1)
    return GroupWeight(codes.t().contiguous(), of_groups, -least / of_groups, bits=4)


def _upper_factor(moments: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """Return the upper Cholesky factor of the inverse, and whether there is none."""
    lower, failure = torch.linalg.cholesky_ex(moments.double())
    inverse = torch.cholesky_inverse(lower)
    upper, other = torch.linalg.cholesky_ex(inverse, upper=True)
    return upper.float(), bool(failure) or bool(other) or not bool(upper.isfinite().all())


def _round_block(
    block: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor, upper: torch.Tensor, codes: torch.Tensor
) -> torch.Tensor:
    """Round a group's columns [size, out] one by one, into `codes`; return their errors, each over its diagonal."""
    inverse, errors = scale.reciprocal(), torch.empty_like(block)
    diagonal = upper.diagonal().tolist()
    for index, column in enumerate(block):
        rounded = column.sub(minimum).mul_(inverse).round_().clamp_(0, INT4_MAX)
        codes[index] = rounded
        error = torch.addcmul(minimum, rounded, scale).neg_().add_(column).div_(diagonal[index])
        errors[index] = error
        block[index + 1 :].addr_(upper[index, index + 1 :], error, alpha=-1.0)
    return errors
