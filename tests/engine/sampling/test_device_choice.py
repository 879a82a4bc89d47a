"""Tokens chosen without waiting are the sampler's, truncated rows included; what is unknown is reported as open."""

from __future__ import annotations

import pytest
import torch

from engine.protocol import SamplingParams
from engine.sampling.device_choice import TorchChooser, choose_on_device, needs_no_host
from engine.sampling.noise import stream_key
from engine.sampling.sampler import Sampler, SampleRow

VOCAB_SIZE = 500


def by_sampler(logits: torch.Tensor, params: list[SamplingParams]) -> list[int]:
    rows = [
        SampleRow(params=one, position=40 + n, prompt_token_ids=(), output_token_ids=()) for n, one in enumerate(params)
    ]
    return Sampler().sample(logits, rows).token_ids


def keys_of(params: list[SamplingParams]) -> list[int]:
    return [stream_key(one.seed, 40 + n) for n, one in enumerate(params)]


def test_rows_with_and_without_truncation_side_by_side() -> None:
    kinds: list[dict[str, float]] = [
        {"temperature": 0.0, "top_p": 0.5},
        {"temperature": 1.0},
        {"temperature": 1.0, "top_p": 0.7},
        {"temperature": 0.6, "top_k": 5},
        {"temperature": 1.3, "min_p": 0.2},
        {"temperature": 1.0, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
    ]
    params = [SamplingParams(max_tokens=1, seed=n, **kind) for n, kind in enumerate(kinds * 4)]  # type: ignore[arg-type]
    logits = torch.randn(len(params), VOCAB_SIZE, generator=torch.Generator().manual_seed(1)) * 4

    choice = choose_on_device(TorchChooser(), logits, params, keys_of(params))

    assert choice.is_open is not None
    assert not choice.is_open.any()
    assert choice.token_ids.tolist() == by_sampler(logits, params)


def test_a_flat_distribution_is_open_where_it_is_cut() -> None:
    params = [SamplingParams(max_tokens=1, temperature=1.0, seed=1, top_p=top_p) for top_p in (1.0, 0.9, 0.05)]

    choice = choose_on_device(TorchChooser(), torch.linspace(0, 0.1, VOCAB_SIZE).repeat(3, 1), params, keys_of(params))

    assert choice.is_open is not None
    assert choice.is_open.tolist() == [False, True, False]


def test_nothing_is_open_where_nothing_is_cut() -> None:
    params = [SamplingParams(max_tokens=1, temperature=1.0, seed=1)]

    assert choose_on_device(TorchChooser(), torch.zeros(1, VOCAB_SIZE), params, keys_of(params)).is_open is None


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(max_tokens=9, presence_penalty=0.1),
        SamplingParams(max_tokens=9, num_top_logprobs=0),
        SamplingParams(max_tokens=9, min_tokens=2),
        SamplingParams(max_tokens=9, logit_bias={1: 2.0}),
    ],
)
def test_parameters_that_count_tokens_or_request_more_need_the_host(params: SamplingParams) -> None:
    assert not needs_no_host(params)
    assert needs_no_host(SamplingParams(max_tokens=9, temperature=0.8, seed=1, top_p=0.9, top_k=4))
