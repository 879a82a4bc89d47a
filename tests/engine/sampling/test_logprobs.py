"""Log probabilities of chosen tokens."""

from __future__ import annotations

import math

import pytest
import torch

from engine.sampling.logprobs import token_logprobs
from engine.sampling.sampler import Sampler
from tests.engine.sampling.rows import random_logits, row


def test_logprobs_are_of_the_models_own_distribution() -> None:
    logits = random_logits(3, 30)
    expected = logits.log_softmax(-1)
    rows = [
        row(temperature=0.2, top_k=2, logit_bias={4: 30.0}, num_top_logprobs=5),
        row(temperature=0.0),
        row(temperature=0.0, num_top_logprobs=0),
    ]

    result = Sampler().sample(logits, rows)

    first, second, third = result.logprobs
    assert result.token_ids[0] == 4
    assert first is not None
    assert first.logprob == pytest.approx(float(expected[0, 4]), abs=1e-5)
    assert [token for token, _ in first.top] == logits[0].topk(5).indices.tolist()
    assert [value for _, value in first.top] == pytest.approx(expected[0].topk(5).values.tolist(), abs=1e-5)
    assert second is None
    assert third is not None
    assert third.logprob == pytest.approx(float(expected[2].max()), abs=1e-5)
    assert third.top == []


def test_the_most_likely_come_first_and_of_equals_the_lower_id() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0, 2.0]])
    (found,) = token_logprobs(logits, [0], [4])
    assert [token_id for token_id, _ in found.top] == [1, 3, 2, 0]
    assert found.logprob == found.top[3][1]
    assert sum(math.exp(logprob) for _, logprob in found.top) == pytest.approx(1.0)


def test_each_row_has_as_many_as_it_requested_and_no_more_than_there_are() -> None:
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    found = token_logprobs(logits, [0, 1, 2], [2, 0, 9])
    assert [len(row.top) for row in found] == [2, 0, 5]
    assert [len(row.top) for row in token_logprobs(logits, [0, 1, 2], [0, 0, 0])] == [0, 0, 0]
