"""Fused operations compute what the plain ones do."""

from __future__ import annotations

import os

import pytest
import torch

pytest.importorskip("triton")

from engine.models.config.config import Activation
from engine.models.fused_ops import TritonLayerOps
from engine.models.layer_ops import LayerOps, TorchLayerOps

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="on CPU through the interpreter; tests/gpu has the cards"
)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gates_are_those_of_torch(activation: Activation) -> None:
    buffer = torch.randn(2, 80, generator=torch.Generator().manual_seed(1)) * 3
    halves = [(copy[:, :40], copy[:, 40:]) for copy in (buffer.clone(), buffer.clone())]
    fused, plain = TritonLayerOps().gate(*halves[0], activation), TorchLayerOps().gate(*halves[1], activation)
    assert torch.allclose(fused, plain, atol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_norms_are_those_of_torch(offset: float) -> None:
    rows, weight = torch.randn(3, 40, generator=torch.Generator().manual_seed(2)), torch.linspace(-1, 1, 40)
    found = [torch.empty_like(rows) for _ in range(2)]
    both: list[LayerOps] = [TritonLayerOps(), TorchLayerOps()]
    for ops, out in zip(both, found, strict=True):
        ops.norm(weight, 1e-5, offset).into(rows, out)
    assert torch.allclose(found[0], found[1], atol=1e-5)
