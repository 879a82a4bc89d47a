"""Projections, norms and MLP branches of a part, with the other parts' shares added."""

from __future__ import annotations

import torch

from engine.models.layers import RMSNorm
from engine.models.linear import DenseLinear
from engine.tensor_parallel.group import Group
from engine.tensor_parallel.linears import GatheredLinear, SummedLinear
from engine.tensor_parallel.shard import Shard


class OtherHalf(Group):
    """The other process's sum of squares is known."""

    def __init__(self, squares: torch.Tensor) -> None:
        super().__init__(0, 2)
        self._squares = squares

    def sum(self, tensor: torch.Tensor) -> None:
        """Add it."""
        tensor.add_(self._squares)


def test_a_norm_over_all_heads_needs_only_the_others_sum_of_squares() -> None:
    rows, weight = torch.randn(3, 32), torch.randn(32)
    expected = torch.nn.functional.rms_norm(rows, (32,), weight, 1e-5)
    found = torch.empty(3, 32)
    for half, other in ((slice(16), slice(16, 32)), (slice(16, 32), slice(16))):
        group = OtherHalf(rows[:, other].square().sum(-1, keepdim=True))
        Shard(group).norm_over_heads(weight[half], 1e-5, 0.0, RMSNorm).into(rows[:, half], found[:, half])
    assert torch.allclose(found, expected, atol=1e-5)


class Doubling(Group):
    """A group of two whose other process computes the same."""

    def __init__(self) -> None:
        super().__init__(0, 2)

    def sum(self, tensor: torch.Tensor) -> None:
        tensor.mul_(2)

    def side_by_side(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat((tensor, tensor), dim=1)


def test_a_split_projection_adds_the_others_products_to_its_own() -> None:
    generator = torch.Generator().manual_seed(1)
    weight, inputs = torch.randn(4, 6, generator=generator), torch.randn(3, 6, generator=generator)
    linear, expected = SummedLinear(DenseLinear(weight), Doubling()), 2 * inputs @ weight.t()
    out, total = torch.empty(3, 4), torch.ones(3, 4)
    linear.into(inputs, out)
    linear.add_to(total, inputs)
    for found in (linear.apply(inputs), out, total - 1):
        assert torch.allclose(found, expected, atol=1e-5)


def test_a_gathered_projection_has_the_vocabulary_alone_without_the_rows_that_fill_it_up() -> None:
    weight, inputs = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), torch.ones(2, 6)
    linear = GatheredLinear(DenseLinear(weight), Doubling(), num_out=7)
    expected = torch.cat((inputs @ weight.t(),) * 2, dim=1)[:, :7]
    out, total = torch.empty(2, 7), torch.ones(2, 7)
    linear.into(inputs, out)
    linear.add_to(total, inputs)
    for found in (linear.apply(inputs), out, total - 1):
        assert torch.allclose(found, expected, atol=1e-5)
