"""Projections, norms and branches whose parts lie in several processes."""

from __future__ import annotations

import torch

from engine.models.activations import Activations
from engine.models.layers import RMSNorm
from engine.models.linear import Linear
from engine.models.mlp import MLP
from engine.tensor_parallel.group import Group


class SummedLinear:
    """A projection whose inputs are split: each process multiplies its share, the products are summed."""

    def __init__(self, part: Linear, group: Group) -> None:
        self._part = part
        self._group = group

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """The sum, in a new tensor."""
        out = self._part.apply(inputs)
        self._group.sum(out)
        return out

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """out = the sum."""
        self._part.into(inputs, out)
        self._group.sum(out)

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """total += the sum."""
        total.add_(self.apply(inputs))


class SummedNorm(RMSNorm):
    """A norm over numbers that are split: only their squares' sum, one number a token, leaves a process."""

    def __init__(self, weight: torch.Tensor, eps: float, offset: float, group: Group) -> None:
        super().__init__(weight, eps, offset)
        self._part_weight = weight.float() + offset
        self._part_eps = eps
        self._whole_size = weight.numel() * group.size
        self._group = group

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """Write the normalised rows [T, size] to `out`, which may be `inputs` itself."""
        values = inputs.float()
        squares = values.square().sum(-1, keepdim=True)
        self._group.sum(squares)
        out.copy_(values * torch.rsqrt(squares / self._whole_size + self._part_eps) * self._part_weight)


class SummedMLP:
    """A branch whose inner width is split; one sum however many experts a token went through."""

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
    """A projection whose outputs are split, put side by side; only for `apply`, as the head uses it."""

    def __init__(self, part: Linear, group: Group, num_out: int) -> None:
        self._part = part
        self._group = group
        self._num_out = num_out

    def apply(self, inputs: torch.Tensor) -> torch.Tensor:
        """[T, in] to a new [T, num_out]."""
        return self._group.side_by_side(self._part.apply(inputs))[:, : self._num_out]

    def into(self, inputs: torch.Tensor, out: torch.Tensor) -> None:
        """The same, written to `out`."""
        out.copy_(self.apply(inputs))

    def add_to(self, total: torch.Tensor, inputs: torch.Tensor) -> None:
        """The same, added to `total`."""
        total.add_(self.apply(inputs))
