"""The gated delta rule by its definition, token by token."""

from __future__ import annotations

import torch

from engine.attention.gated_delta import DeltaInputs, convolve, normalize_keys, run_sequence, step_states

HEADS, KEY, VALUE = 3, 8, 6


def make_inputs(num_tokens: int) -> DeltaInputs:
    generator = torch.Generator().manual_seed(num_tokens)
    queries, keys = torch.randn(2, num_tokens, HEADS, KEY, generator=generator)
    values = torch.randn(num_tokens, HEADS, VALUE, generator=generator)
    decays, rates = torch.rand(2, num_tokens, HEADS, generator=generator)
    return DeltaInputs(queries, normalize_keys(keys), values, -decays, rates)


def test_solved_chunks_equal_single_tokens() -> None:
    inputs = make_inputs(150)
    state = torch.randn(HEADS, KEY, VALUE, generator=torch.Generator().manual_seed(1))

    outputs, last = run_sequence(state, inputs)

    single = state.unsqueeze(0)
    for token in range(150):
        output, single = step_states(single, inputs.cut(slice(token, token + 1)))
        assert torch.allclose(output[0], outputs[token], atol=1e-4)
    assert torch.allclose(single[0], last, atol=1e-4)


def test_a_state_returns_what_it_holds_under_a_key() -> None:
    key = torch.zeros(1, 1, KEY)
    key[..., 2] = 1.0
    value, none = torch.arange(VALUE).float().view(1, 1, VALUE), torch.zeros(1, 1)

    outputs, state = step_states(torch.ones(1, 1, KEY, VALUE), DeltaInputs(key, key, value, none, none + 1.0))

    assert torch.equal(outputs, value)
    assert torch.equal(state[0, 0, 0], torch.ones(VALUE))


def test_a_convolution_sees_the_newest_inputs_last() -> None:
    inputs, windows = torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([[0, 1, 2], [1, 2, 3]])
    weight = torch.tensor([[0.0], [1.0], [10.0]])

    assert torch.allclose(convolve(inputs, windows, weight), torch.nn.functional.silu(torch.tensor([[32.0], [43.0]])))
