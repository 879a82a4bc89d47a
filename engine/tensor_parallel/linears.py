"""Projections, norms and MLP branches split over several processes."""

from __future__ import annotations

import torch

from engine.models.activations import Activations
from engine.models.layers import RMSNorm
from engine.models.linear import Linear
from engine.models.mlp import MLP
from engine.tensor_parallel.group import Group


class SummedLinear:
    """Row-parallel projection: each process multiplies its share of the inputs, and the products are summed."""

    def __init__(self, part: Linear, group: Group) -> None:
        self._part = part
        self._group = group

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute the sum to a new tensor."""
        out = self._part.apply(inputs)
        self._group.sum(out)
        return out

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write the sum to `out`."""
        self._part.into(inputs, out)
        self._group.sum(out)

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """Add the sum to `total`."""
        total.add_(self.apply(inputs))


class SummedNorm(RMSNorm):
    """Norm over split numbers; processes exchange only the sum of squares, one number per token."""

    def __init__(self, weight: torch.Tensor, eps: float, offset: float, group: Group) -> None:
        super().__init__(weight, eps, offset)
        self._part_weight = weight.float() + offset
        self._part_eps = eps
        self._whole_size = weight.numel() * group.size
        self._group = group

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write the normalized rows [T, size] to `out`, which may be `inputs` itself."""
        values = inputs.float()
        squares = values.square().sum(-1, keepdim=True)
        self._group.sum(squares)
        out.copy_(values * torch.rsqrt(squares / self._whole_size + self._part_eps) * self._part_weight)


class SummedMLP:
    """MLP branch with a split inner width; one sum per branch, whatever the number of experts."""

    def __init__(self, part: MLP, group: Group) -> None:
        self._part = part
        self._group = group

    def into(self, out: torch.Tensor, inputs: torch.Tensor, activations: Activations) -> None:
        """Write the branch's output to `out`."""
        self._part.into(out, inputs, activations)
        self._group.sum(out)

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor, activations: Activations) -> None:
        """Add the branch's output to `total`."""
        out = torch.empty_like(total)
        self.into(out, inputs, activations)
        total.add_(out)


class GatheredLinear:
    """Column-parallel projection whose outputs are gathered, for the vocabulary projection."""

    def __init__(self, part: Linear, group: Group, num_out: int) -> None:
        self._part = part
        self._group = group
        self._num_out = num_out

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """Compute [T, in] to a new [T, num_out]."""
        return self._group.side_by_side(self._part.apply(inputs))[:, : self._num_out]

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write the gathered outputs to `out`."""
        out.copy_(self.apply(inputs))

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """Add the gathered outputs to `total`."""
        total.add_(self.apply(inputs))
