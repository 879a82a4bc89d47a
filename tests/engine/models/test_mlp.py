"""The dense MLP branch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from engine.models.activations import ActivationBuffers
from engine.models.config.config import Activation
from engine.models.families.registry import read_model_config
from engine.models.linear import DenseLinear
from engine.models.mlp import DenseMLP, activate
from tests.engine.models.checkpoints import make_reference


def written_out(gate: torch.Tensor, activation: Activation) -> torch.Tensor:
    return functional.silu(gate) if activation == "silu" else functional.gelu(gate, approximate="tanh")


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_an_activation_is_applied_in_place(activation: Activation) -> None:
    gate = torch.linspace(-9, 9, 50)
    expected = written_out(gate, activation)
    assert activate(gate, activation) is gate
    assert torch.allclose(gate, expected)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_the_branch_is_down_of_activated_gate_times_up(activation: Activation, tmp_path: Path) -> None:
    make_reference("llama3").config.save_pretrained(tmp_path)
    activations = ActivationBuffers(read_model_config(tmp_path), torch.float32, torch.device("cpu")).of(3)
    generator = torch.Generator().manual_seed(1)
    gate_up, down = torch.randn(160, 48, generator=generator) * 0.1, torch.randn(48, 80, generator=generator) * 0.1
    mlp, inputs = DenseMLP(DenseLinear(gate_up), DenseLinear(down), activation), torch.randn(3, 48, generator=generator)
    gate, up = (inputs @ gate_up.t()).chunk(2, dim=1)
    expected = (written_out(gate, activation) * up) @ down.t()
    total, out = torch.ones(3, 48), inputs.clone()
    mlp.add_to(total, inputs, activations)
    mlp.into(out, out, activations)
    assert torch.allclose(total - 1, expected, atol=1e-5)
    assert torch.allclose(out, expected, atol=1e-5)
