"""The short way to the largest logit agrees with the sampler, and knows rows without a choice."""

from __future__ import annotations

import pytest
import torch

from engine.protocol import SamplingParams
from engine.sampling.greedy import is_greedy, largest_tokens
from engine.sampling.sampler import Sampler, SampleRow

NAN, NOTHING = float("nan"), float("-inf")


@pytest.mark.parametrize(
    ("row", "token_id", "is_invalid"),
    [
        ([1.0, 3.0, 2.0], 1, False),
        ([2.0, 2.0, 1.0], 0, False),
        ([NOTHING, -5.0, NOTHING], 1, False),
        ([NOTHING, NOTHING, NOTHING], 0, True),
        ([1.0, NAN, 2.0], 1, True),
    ],
)
def test_the_first_of_the_largest_is_chosen(row: list[float], token_id: int, is_invalid: bool) -> None:
    assert largest_tokens(torch.tensor([row])) == ([token_id], [is_invalid])


def test_the_sampler_chooses_the_same() -> None:
    logits = torch.randn(7, 501, generator=torch.Generator().manual_seed(1)).mul_(4).round_()
    params = SamplingParams(max_tokens=1, temperature=0.0)
    rows = [SampleRow(params=params, position=3, prompt_token_ids=(), output_token_ids=())] * 7
    assert largest_tokens(logits)[0] == Sampler().sample(logits, rows).token_ids


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 0.5},
        {"presence_penalty": 0.1},
        {"logit_bias": {3: 1.0}},
        {"min_tokens": 2},
        {"num_top_logprobs": 0},
    ],
)
def test_what_needs_more_than_the_largest_is_not_greedy(changed: dict[str, object]) -> None:
    plain = {"max_tokens": 5, "temperature": 0.0}
    assert is_greedy(SamplingParams(**plain))  # type: ignore[arg-type]
    assert not is_greedy(SamplingParams(**(plain | changed)))  # type: ignore[arg-type]
