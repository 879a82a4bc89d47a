"""The prefix cache of a real engine over HTTP: what is shared is computed once, and answers do not change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.e2e.lone_engine import LoneEngine, lone_engine

pytestmark = pytest.mark.e2e

PREFIX_TOKENS = 2000
NUM_REQUESTS = 100
BLOCK_SIZE = 16


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneEngine]:
    with lone_engine(tmp_path_factory.mktemp("cached")) as engine:
        yield engine


@pytest.fixture(scope="module")
def uncached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneEngine]:
    with lone_engine(tmp_path_factory.mktemp("uncached"), "--no-enable-prefix-cache") as engine:
        yield engine


def prompt(seed: int, num_tokens: int) -> list[int]:
    """Token ids that differ from block to block."""
    return [(seed * 131 + index * index * 7 + index) % 1800 for index in range(num_tokens)]


def complete(client: httpx.Client, token_ids: list[int], salt: str = "", **fields: Any) -> dict[str, Any]:
    """One greedy completion's body."""
    body = {"model": "small", "prompt": token_ids, "max_tokens": 8, "temperature": 0, **fields}
    response = client.post("/v1/completions", json=body, headers={"x-penstock-cache-salt": salt} if salt else {})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def cached_tokens(answer: dict[str, Any]) -> int:
    details = answer["usage"]["prompt_tokens_details"]
    assert isinstance(details["cached_tokens"], int)
    return int(details["cached_tokens"])


def test_a_system_prompt_that_many_share_is_computed_once(engine: LoneEngine) -> None:
    shared = prompt(1, PREFIX_TOKENS)
    before = engine.metric("engine_prefix_cache_hits_tokens_total")
    with engine.client() as client, ThreadPoolExecutor(16) as pool:
        answers = list(
            pool.map(lambda n: complete(client, shared + prompt(100 + n, 12), max_tokens=2), range(NUM_REQUESTS))
        )
    hits = engine.metric("engine_prefix_cache_hits_tokens_total") - before
    assert (NUM_REQUESTS * PREFIX_TOKENS - hits) / PREFIX_TOKENS <= 1.1
    assert sum(map(cached_tokens, answers)) == hits


def test_usage_reports_cached_tokens_plain_streamed_and_for_several_choices(engine: LoneEngine) -> None:
    token_ids = prompt(2, 10 * BLOCK_SIZE)
    expected = 10 * BLOCK_SIZE - 1  # the last token is computed, for the answer's first
    with engine.client() as client:
        assert cached_tokens(complete(client, token_ids)) == 0
        assert cached_tokens(complete(client, token_ids)) == expected
        assert cached_tokens(complete(client, token_ids, n=3)) == expected
        fields = {"stream": True, "stream_options": {"include_usage": True}}
        body = {"model": "small", "prompt": token_ids, "max_tokens": 4, **fields}
        events = client.post("/v1/completions", json=body).text.split("\n\n")
    usages = [json.loads(event[6:])["usage"] for event in events if event.startswith("data: {")]
    assert [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages if usage] == [expected]


def test_salts_keep_prefixes_apart_and_a_cache_key_does_not(engine: LoneEngine) -> None:
    token_ids = prompt(3, 100)
    with engine.client() as client:
        complete(client, token_ids, "tenant a")
        assert cached_tokens(complete(client, token_ids, "tenant b")) == 0
        assert cached_tokens(complete(client, token_ids, "tenant a", prompt_cache_key="other")) == 96


def test_what_an_aborted_request_computed_is_stored(engine: LoneEngine) -> None:
    token_ids = prompt(4, 1600)
    body = {"model": "small", "prompt": token_ids, "max_tokens": 2000, "ignore_eos": True, "stream": True}
    with engine.client() as client:
        with client.stream("POST", "/v1/completions", json=body) as response:
            next(response.iter_bytes())
        assert cached_tokens(complete(client, token_ids)) == 1600 - 1


def test_greedy_answers_are_equal_bytes_with_the_cache_and_without(engine: LoneEngine, uncached: LoneEngine) -> None:
    shared = prompt(5, 300)
    prompts = [shared + prompt(50 + n, 5 + 7 * n) for n in range(4)]
    texts = []
    for each in (engine, uncached):
        with each.client() as client:
            runs = [[complete(client, ids, max_tokens=48)["choices"][0]["text"] for ids in prompts] for _ in range(2)]
        texts += runs
    assert all(text == texts[0] for text in texts)
