"""Each way of cutting unlikely tokens keeps exactly the set that its definition names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.protocol import SamplingParams
from engine.sampling.truncation import has_truncation, surviving_tokens
from tests.engine.sampling.rows import random_logits


def survivors(logits: torch.Tensor, params: list[SamplingParams]) -> list[set[int]]:
    values, ids = surviving_tokens(logits, params)
    return [set(ids[n][values[n] > float("-inf")].tolist()) for n in range(len(params))]


def reference_survivors(logits: torch.Tensor, params: SamplingParams) -> set[int]:
    """One row by definition: sort, cut to k, renormalise, cut to p, cut by the largest."""
    ranked = sorted(range(len(logits)), key=lambda token: -float(logits[token]))
    if params.top_k:
        ranked = ranked[: params.top_k]
    probabilities = torch.softmax(logits[ranked].double(), 0).tolist()
    retained: set[int] = set()
    mass = 0.0
    for token, probability in zip(ranked, probabilities, strict=True):
        if not retained or mass < params.top_p:
            retained.add(token)
        mass += probability
    floor = max(probabilities) * params.min_p
    return {token for token, p in zip(ranked, probabilities, strict=True) if token in retained and p >= floor}


@pytest.mark.parametrize(
    "cut",
    [
        {"top_k": 1},
        {"top_k": 5},
        {"top_k": 150},
        {"top_k": 10_000},
        {"top_p": 0.0},
        {"top_p": 0.3},
        {"top_p": 0.999},
        {"min_p": 0.05},
        {"min_p": 1.0},
        {"top_k": 20, "top_p": 0.7},
        {"top_k": 20, "top_p": 0.9, "min_p": 0.1},
        {"top_p": 0.95, "min_p": 0.001},
    ],
)
@pytest.mark.parametrize("spread", [0.1, 3.0], ids=["flat", "peaked"])
def test_survivors_equal_the_reference(cut: dict[str, Any], spread: float) -> None:
    logits = random_logits(4, 300, spread=spread)
    params = SamplingParams(max_tokens=1, **cut)

    assert survivors(logits, [params] * 4) == [reference_survivors(row, params) for row in logits]


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.lists(
        st.builds(
            SamplingParams,
            max_tokens=st.just(1),
            top_k=st.integers(0, 90),
            top_p=st.floats(0.01, 1.0),
            min_p=st.floats(0.0, 0.5),
        ),
        min_size=1,
        max_size=5,
    ),
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.05, 1.0, 5.0]),
)
def test_rows_with_different_cuts_share_a_batch(cuts: list[SamplingParams], seed: int, spread: float) -> None:
    logits = random_logits(len(cuts), 120, seed=seed, spread=spread)

    together = survivors(logits, cuts)

    assert together == [survivors(logits[n : n + 1], [params])[0] for n, params in enumerate(cuts)]


def test_tokens_of_equal_logit_survive_together() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0, 2.0, 0.0]])

    assert survivors(logits, [SamplingParams(max_tokens=1, top_k=1)]) == [{1, 3}]
    assert survivors(logits, [SamplingParams(max_tokens=1, top_k=3)]) == [{1, 3, 2, 4, 5}]


def test_forbidden_tokens_never_survive_a_wide_cut() -> None:
    logits = torch.tensor([[0.0, float("-inf"), -1.0, float("-inf")]])

    for params in (SamplingParams(max_tokens=1, top_k=3), SamplingParams(max_tokens=1, top_p=0.999999)):
        assert survivors(logits, [params]) == [{0, 2}]


def test_only_real_cuts_count_as_truncation() -> None:
    assert not has_truncation(SamplingParams(max_tokens=1, temperature=0.5))
    assert has_truncation(SamplingParams(max_tokens=1, top_p=0.99))
