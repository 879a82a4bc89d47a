"""Kernels of adapters' products against matrix products."""

from __future__ import annotations

import os

import pytest
import torch

pytest.importorskip("triton")

from engine.kernels.token_adapters import add_token_products

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="on CPU through the interpreter; tests/gpu has the cards"
)

IN_SIZE = 530
SPANS = [(0, 20), (20, 150), (170, 7)]


def test_each_token_gains_the_product_of_its_adapter_in_the_modules_that_it_changes() -> None:
    generator = torch.Generator().manual_seed(1)
    ranks = [[6, 6, 6], [0, 3, 0]]
    weights = torch.randn(2, 6 * (3 * IN_SIZE + 177), generator=generator)
    table = torch.zeros(2, 3, 3, dtype=torch.int64)
    products: list[torch.Tensor] = []
    for adapter, of_modules in enumerate(ranks):
        change = torch.zeros(177, IN_SIZE)
        first, place = 0, sum(of_modules) * IN_SIZE
        for module, rank in enumerate(of_modules):
            start, size = SPANS[module]
            table[adapter, module] = torch.tensor((rank, first, place))
            down = weights[adapter, first * IN_SIZE : (first + rank) * IN_SIZE].view(rank, IN_SIZE)
            up = weights[adapter, place : place + rank * size].view(rank, size)
            change[start : start + size] = up.t() @ down
            first, place = first + rank, place + rank * size
        products.append(change)
    inputs = torch.randn(4, IN_SIZE, generator=generator)
    out = torch.randn(4, 177, generator=generator)
    expected = out.clone()
    for token, adapter in enumerate([1, -1, 0, 1]):
        if adapter >= 0:
            expected[token] += products[adapter] @ inputs[token]

    adapters, spans = torch.tensor([1, -1, 0, 1], dtype=torch.int32), torch.tensor(SPANS)
    add_token_products(out, inputs, adapters, weights, table, spans, max_rank=6, max_size=150)

    assert torch.allclose(out, expected, atol=1e-3)


def test_inputs_and_outputs_may_be_parts_of_wider_rows() -> None:
    weights = torch.arange(2.0 * 2 + 2 * 3).view(1, -1) / 7
    table = torch.tensor([[[2, 0, 4]]])
    wide_inputs, wide_out = torch.ones(2, 5), torch.zeros(2, 6)
    down, up = weights[0, :4].view(2, 2), weights[0, 4:].view(2, 3)

    adapters, spans = torch.zeros(2, dtype=torch.int32), torch.tensor([(0, 3)])
    add_token_products(wide_out[:, :3], wide_inputs[:, 3:], adapters, weights, table, spans, max_rank=2, max_size=3)

    assert torch.allclose(wide_out[:, :3], (up.t() @ down @ torch.ones(2)).expand(2, 3))
    assert torch.equal(wide_out[:, 3:], torch.zeros(2, 3))
