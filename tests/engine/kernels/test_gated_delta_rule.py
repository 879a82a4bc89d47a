"""The kernel of the gated delta rule against torch."""

from __future__ import annotations

import os

import pytest
import torch

pytest.importorskip("triton")

from engine.attention.gated_delta import DeltaInputs, advance
from engine.attention.step_states import StateUse, StepStates
from engine.kernels.gated_delta_rule import advance_states

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="on CPU through the interpreter; tests/gpu has the cards"
)

HEADS = 2
CPU = torch.device("cpu")


def make_inputs(num_tokens: int, key_dim: int, value_dim: int) -> DeltaInputs:
    generator = torch.Generator().manual_seed(key_dim)
    queries, keys = torch.randn(2, num_tokens, HEADS, key_dim, generator=generator)
    values = torch.randn(num_tokens, HEADS, value_dim, generator=generator)
    decays, rates = torch.rand(2, num_tokens, HEADS, generator=generator)
    return DeltaInputs(queries, keys / key_dim**0.5, values, -decays, rates)


@pytest.mark.parametrize(("key_dim", "value_dim"), [(8, 12), (16, 20)])
def test_states_and_outputs_of_any_mix_are_those_of_torch(key_dim: int, value_dim: int) -> None:
    uses = [StateUse(3, 1), StateUse(None, 5), StateUse(0, 6, ((4, 2), (5, 7))), StateUse(3, 8)]
    step = StepStates.of(uses, [0, 1, 8, 15, 15], 4, CPU)
    states = torch.randn(9, HEADS, key_dim, value_dim, generator=torch.Generator().manual_seed(1))
    expected, found = states.clone(), states.clone()
    inputs = make_inputs(15, key_dim, value_dim)

    outputs = advance(expected, step, inputs)

    result = advance_states(found, step.reads, step.starts, step.cut_ends, step.cut_slots, inputs)

    assert torch.allclose(result, outputs, atol=1e-5)
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.equal(found[[0, 3, 4, 8]], states[[0, 3, 4, 8]]), "read, or of no part in the step"
    assert not torch.equal(found[7], states[7])
