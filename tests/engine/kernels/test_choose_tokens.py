"""Tokens chosen by kernels, and by torch without waiting, are the sampler's."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

pytest.importorskip("triton")

from engine.kernels.choose_tokens import TritonChooser
from engine.protocol import SamplingParams
from engine.sampling.device_choice import TokenChooser, TorchChooser
from engine.sampling.noise import stream_key
from engine.sampling.sampler import Sampler, SampleRow

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="on CPU through the interpreter; tests/gpu has the cards"
)
CHOOSERS: list[Callable[[], TokenChooser]] = [TorchChooser, TritonChooser]


def by_sampler(logits: torch.Tensor, params: list[SamplingParams]) -> tuple[list[int], tuple[int, ...]]:
    rows = [
        SampleRow(params=one, position=40 + n, prompt_token_ids=(), output_token_ids=()) for n, one in enumerate(params)
    ]
    result = Sampler().sample(logits, rows)
    return result.token_ids, result.invalid_rows


@pytest.mark.parametrize("chooser", CHOOSERS)
@pytest.mark.parametrize("vocab_size", [97, 9001])
def test_tokens_are_those_of_the_sampler(chooser: Callable[[], TokenChooser], vocab_size: int) -> None:
    heats = [0.0, 1.0, 0.3, 2.0, 1e-6, 0.0, 1.0, 1.0]
    params = [SamplingParams(max_tokens=1, temperature=heat, seed=7 * n) for n, heat in enumerate(heats)]
    logits = torch.randn(len(heats), vocab_size, generator=torch.Generator().manual_seed(1)) * 3
    logits[0, 50] = logits[0, 60] = 99.0
    logits[3, :90] = float("-inf")
    keys = [stream_key(one.seed, 40 + n) for n, one in enumerate(params)]

    token_ids, is_invalid = chooser().choose(logits, keys, heats)

    assert token_ids.tolist() == by_sampler(logits, params)[0]
    assert token_ids[0] == 50
    assert not is_invalid.any()


@pytest.mark.parametrize("chooser", CHOOSERS)
@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_rows_without_a_choice_are_reported_and_disturb_nobody(
    chooser: Callable[[], TokenChooser], heat: float
) -> None:
    logits = torch.randn(3, 130, generator=torch.Generator().manual_seed(2))
    logits[0] = float("-inf")
    logits[2, 5] = float("nan")
    params = [SamplingParams(max_tokens=1, temperature=heat, seed=1)] * 3

    token_ids, is_invalid = chooser().choose(logits, [stream_key(1, 40 + n) for n in range(3)], [heat] * 3)

    expected, invalid_rows = by_sampler(logits, params)
    assert is_invalid.nonzero().flatten().tolist() == list(invalid_rows) == [0, 2]
    assert token_ids[1] == expected[1]
    assert bool((token_ids < 130).all())


def test_draws_follow_the_probabilities() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2]).log().repeat(60, 1)

    token_ids, _ = TritonChooser().choose(logits, [stream_key(3, position) for position in range(60)], [1.0] * 60)

    shares = token_ids.bincount(minlength=3) / 60
    assert torch.allclose(shares, torch.tensor([0.5, 0.3, 0.2]), atol=0.2)
