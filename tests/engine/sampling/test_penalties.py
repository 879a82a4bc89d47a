"""Penalties follow OpenAI's and Hugging Face's definitions, however the output was counted."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol import SamplingParams
from engine.sampling.penalties import PenaltyState
from tests.engine.sampling.rows import random_logits

CPU = torch.device("cpu")
VOCAB = 40


def penalised(params: SamplingParams, prompt: list[int], output: list[int], logits: torch.Tensor) -> torch.Tensor:
    """By definition, token by token."""
    counts = Counter(output)
    expected = logits.clone()
    for token in range(len(logits)):
        value = float(logits[token])
        if token in counts or token in prompt:
            value = value / params.repetition_penalty if value > 0 else value * params.repetition_penalty
        value -= params.frequency_penalty * counts[token] + params.presence_penalty * (token in counts)
        expected[token] = value
    return expected


token_lists = st.lists(st.integers(0, VOCAB - 1), max_size=90)


@settings(max_examples=60, deadline=None)
@given(
    prompt=token_lists,
    output=token_lists,
    drafts=st.lists(st.integers(0, VOCAB - 1), max_size=5),
    presence=st.sampled_from([0.0, 0.7, -1.5]),
    frequency=st.sampled_from([0.0, 0.3, -0.2]),
    repetition=st.sampled_from([1.0, 1.3, 0.8]),
)
def test_penalties_equal_the_reference_at_every_step(
    prompt: list[int], output: list[int], drafts: list[int], presence: float, frequency: float, repetition: float
) -> None:
    params = SamplingParams(
        max_tokens=1, presence_penalty=presence, frequency_penalty=frequency, repetition_penalty=repetition
    )
    state = PenaltyState(params, prompt, CPU)
    logits = random_logits(1, VOCAB)[0]

    # Speculation at every seventh token; none of the drafts is accepted.
    for length in range(0, len(output) + 1, 7):
        speculated = logits.clone()
        state.penalise(speculated, output[:length], drafts)
        plain = logits.clone()
        state.penalise(plain, output[:length], [])

        assert torch.allclose(speculated, penalised(params, prompt, output[:length] + drafts, logits), atol=1e-5)
        assert torch.allclose(plain, penalised(params, prompt, output[:length], logits), atol=1e-5)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(max_tokens=1, presence_penalty=0.1),
        SamplingParams(max_tokens=1, frequency_penalty=-0.1),
        SamplingParams(max_tokens=1, repetition_penalty=1.1),
    ],
)
def test_a_state_is_made_only_for_sequences_that_need_one(params: SamplingParams) -> None:
    assert PenaltyState.create(SamplingParams(max_tokens=1), [1], CPU) is None
    assert PenaltyState.create(params, [1], CPU) is not None
