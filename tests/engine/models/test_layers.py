"""Norms and rotations, as written out."""

from __future__ import annotations

import pytest
import torch

from engine.models.config.rope import RopeConfig
from engine.models.layers import HeadGroupNorm, RMSNorm, Rotary

CPU = torch.device("cpu")


def normed(inputs: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    inputs = inputs.double()
    return inputs / (inputs.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_a_norm_is_that_of_the_buffer_also_in_place(dtype: torch.dtype, offset: float) -> None:
    generator = torch.Generator().manual_seed(1)
    inputs, weight = torch.randn(5, 24, generator=generator).to(dtype), torch.randn(24, generator=generator).to(dtype)
    expected = normed(inputs, weight.double() + offset, 1e-5)
    norm, out = RMSNorm(weight, 1e-5, offset), torch.empty_like(inputs)
    norm.into(inputs, out)
    norm.into(inputs, inputs)
    tolerance = 0.05 if dtype == torch.bfloat16 else 1e-5
    for found in (out, inputs):
        assert torch.allclose(found.double(), expected, atol=tolerance, rtol=tolerance)


def test_a_row_of_zeros_stays_zeros_and_a_tiny_one_is_held_by_epsilon() -> None:
    rows = torch.stack((torch.zeros(8), torch.full((8,), 1e-8)))
    out = torch.empty_like(rows)
    RMSNorm(torch.ones(8), 1e-6).into(rows, out)
    assert not out[0].any()
    assert out[1].tolist() == pytest.approx([1e-5] * 8, rel=1e-3)


def test_queries_and_keys_are_normed_over_all_their_heads_apart() -> None:
    heads = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(2))
    weights = torch.randn(32, generator=torch.Generator().manual_seed(3)), torch.randn(16)
    expected = torch.cat(
        (
            normed(heads[:, :4].flatten(1), weights[0], 1e-6).view(3, 4, 8),
            normed(heads[:, 4:].flatten(1), weights[1], 1e-6).view(3, 2, 8),
        ),
        dim=1,
    )
    HeadGroupNorm(RMSNorm(weights[0], 1e-6), RMSNorm(weights[1], 1e-6), 4).into(heads, heads)
    assert torch.allclose(heads.double(), expected, atol=1e-5)


def test_a_table_that_grows_has_the_same_rotations_as_one_made_at_once() -> None:
    config = RopeConfig(theta=10_000.0, attention_factor=1.5, rotated_share=0.5)
    rotary = Rotary(config, 12, CPU)
    before = rotary.table(10).clone()

    table = rotary.table(4097)

    assert table.shape == (8192, 6)
    assert torch.equal(table, config.rotations(12, 8192))
    assert torch.equal(table[: before.shape[0]], before)
    assert rotary.table(8192) is table


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adjacent_numbers_turn_by_their_position(dtype: torch.dtype) -> None:
    rotary = Rotary(RopeConfig(theta=100.0), 4, CPU)
    heads = torch.tensor([[[1.0, 0.0, 0.0, 1.0]]] * 2, dtype=dtype)
    rotations = rotary.at(torch.tensor([0, 3]), 4)
    Rotary.rotate(torch.view_as_complex(heads.view(2, 1, 2, 2)) if dtype == torch.float32 else heads, rotations)
    angle = torch.tensor([3.0, 0.3])
    turned = [float(angle[0].cos()), float(angle[0].sin()), -float(angle[1].sin()), float(angle[1].cos())]
    assert heads[0, 0].tolist() == [1.0, 0.0, 0.0, 1.0]
    assert heads[1, 0].float().tolist() == pytest.approx(turned, abs=0.01 if dtype == torch.bfloat16 else 1e-6)


def test_the_table_grows_and_keeps_what_it_had() -> None:
    rotary = Rotary(RopeConfig(theta=100.0), 8, CPU)
    before = rotary.table(10)
    assert rotary.table(5) is before
    after = rotary.table(before.shape[0] + 1)
    assert after.shape[0] > before.shape[0]
    assert torch.equal(after[: before.shape[0]], before)
