"""Requests as sampling parameters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import FrontConfig
from engine.frontend.request.errors import ApiError
from engine.frontend.request.requests import parse_chat
from engine.frontend.text.sampling import choice_seed, choose_max_tokens, sampling_params
from engine.protocol import Ready, SamplingParams

READY = Ready(
    max_model_len=100, block_size=16, num_blocks=10, vocab_size=50, device="cpu", dtype="float32", model_type="fake"
)
CONFIG = FrontConfig(listen="unix:/nowhere", model_name="tiny")


def params(stop_token_ids: frozenset[int] = frozenset({3, 1}), **fields: Any) -> list[SamplingParams]:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], **fields}
    return sampling_params(
        parse_chat(json.dumps(body).encode(), CONFIG),
        READY,
        max_tokens=10,
        num_top_logprobs=None,
        stop_token_ids=stop_token_ids,
        draw_seed=lambda: 99,
    )


def test_what_is_not_stated_is_the_wires_default() -> None:
    assert params() == [SamplingParams(max_tokens=10, seed=99, stop_token_ids=(1, 3))]


def test_end_tokens_that_the_model_cannot_produce_are_left_out() -> None:
    (found,) = params(frozenset({-1, 3, 49, 50, 10_000_000}))
    assert found.stop_token_ids == (3, 49)


def test_what_is_stated_arrives() -> None:
    fields: dict[str, Any] = {
        "temperature": 0, "top_p": 0.5, "top_k": 7, "min_p": 0.1, "seed": 4, "presence_penalty": 1,
        "frequency_penalty": -1, "repetition_penalty": 1.5, "min_tokens": 2,
    }  # fmt: skip
    (found,) = params(**fields, logit_bias={"5": -100}, ignore_eos=True)
    assert {name: getattr(found, name) for name in fields} == fields
    assert (found.logit_bias, found.stop_token_ids) == ({5: -100.0}, ())


def test_each_choice_has_its_own_seed_and_the_first_has_the_requests() -> None:
    seeds = [found.seed for found in params(n=4, seed=7)]
    assert seeds[0] == 7
    assert len(set(seeds)) == 4


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 100))
def test_seeds_fit_in_63_bits_and_are_the_same_every_time(seed: int, index: int) -> None:
    assert 0 <= choice_seed(seed, index) < 2**63
    assert choice_seed(seed, index) == choice_seed(seed, index)


@pytest.mark.parametrize(
    ("fields", "param"), [({"logit_bias": {"50": 1}}, "logit_bias"), ({"min_tokens": 11}, "min_tokens")]
)
def test_what_the_model_cannot_do_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        params(**fields)
    assert (caught.value.code, caught.value.param) == ("invalid_value", param)


@pytest.mark.parametrize(
    ("num_prompt", "requested", "expected"), [(10, None, 90), (99, None, 1), (10, 90, 90), (10, 1, 1)]
)
def test_an_answer_may_be_as_long_as_requested_or_as_fits(
    num_prompt: int, requested: int | None, expected: int
) -> None:
    assert choose_max_tokens(num_prompt, requested, 100, "messages") == expected


@pytest.mark.parametrize(("num_prompt", "requested"), [(100, None), (100, 1), (500, None), (10, 91)])
def test_what_cannot_fit_is_refused_with_both_numbers(num_prompt: int, requested: int | None) -> None:
    with pytest.raises(ApiError, match=rf"100 tokens.*{num_prompt}") as caught:
        choose_max_tokens(num_prompt, requested, 100, "messages")
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")


def test_no_nucleus_is_the_most_likely_token_and_minus_one_is_every_token() -> None:
    (greedy,) = params(top_p=0, top_k=9)
    assert (greedy.top_p, greedy.top_k) == (1.0, 1)
    (every,) = params(top_k=-1)
    assert every.top_k == 0
