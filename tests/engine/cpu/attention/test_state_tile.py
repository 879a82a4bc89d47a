"""The gated delta rule in registers, beside torch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.attention.gated_delta import DeltaInputs, step_states
from engine.cpu.attention import state_tile
from engine.cpu.gemm.tiles import LANES
from engine.cpu.jit.compiler import compiled

KEY_DIM = 24


@compiled
def advance(before, after, key_dim, value_dim, keys, queries, values, out, decay, rate):  # type: ignore[no-untyped-def]
    state_tile.advance_state(before, after, key_dim, value_dim, keys, queries, values, out, decay, rate)


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("value_dim", [LANES, 3 * LANES, 4 * LANES, 5 * LANES, 8 * LANES])
@pytest.mark.parametrize("is_in_place", [False, True])
def test_a_state_and_what_it_returns_equal_torchs(value_dim: int, is_in_place: bool) -> None:
    before, value = numbers(KEY_DIM, value_dim), numbers(value_dim, seed=2)
    key, query = torch.nn.functional.normalize(numbers(2, KEY_DIM, seed=3), dim=1)
    decay, rate = 0.75, 0.5
    inputs = (query, key, value, torch.tensor(decay).log(), torch.tensor(rate))
    of_head = DeltaInputs(*(part.double()[None, None] for part in inputs))
    expected, expected_state = step_states(before.double()[None, None], of_head)
    after = before.clone() if is_in_place else torch.zeros(KEY_DIM, value_dim)
    source, out = after if is_in_place else before, torch.zeros(value_dim)

    sizes, inputs_at = (KEY_DIM, value_dim), (key.data_ptr(), query.data_ptr(), value.data_ptr())
    advance(
        source.data_ptr(), after.data_ptr(), *sizes, *inputs_at, out.data_ptr(), np.float32(decay), np.float32(rate)
    )

    assert (after - expected_state[0, 0]).abs().max() < 1e-5
    assert (out - expected[0, 0]).abs().max() < 1e-5
