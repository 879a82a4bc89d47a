"""Prompts that come all at once: they wait where no deadline was stated, and are refused where one was."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.e2e.lone_engine import LoneEngine, lone_engine

pytestmark = pytest.mark.e2e

NUM_PROMPTS = 24
SLOW = ("--max-num-seqs", "2", "--max-num-batched-tokens", "32")
"""A small batch, so that prompts wait long enough to be seen waiting."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneEngine]:
    with lone_engine(tmp_path_factory.mktemp("engine"), *SLOW) as running:
        yield running


def send(engine: LoneEngine, number: int, headers: dict[str, str] | None = None) -> httpx.Response:
    """A prompt of about 1,500 tokens that shares no beginning with the others."""
    words = " ".join(f"item {number} {place} is fine." for place in range(130))
    body = {"messages": [{"role": "user", "content": words}], "max_tokens": 4, "model": "small"}
    with engine.client() as client:
        return client.post("/v1/chat/completions", json=body, headers=headers)


def test_prompts_without_a_deadline_are_all_answered_and_one_with_a_deadline_is_refused(engine: LoneEngine) -> None:
    with ThreadPoolExecutor(NUM_PROMPTS + 1) as threads:
        sent = [threads.submit(send, engine, number) for number in range(NUM_PROMPTS)]
        while engine.metric("engine_waiting") < NUM_PROMPTS / 2:
            assert not any(each.done() and each.result().status_code != 200 for each in sent)
        late = send(engine, NUM_PROMPTS, {"x-penstock-deadline-ms": "5"})
        answers = [each.result() for each in sent]
    assert [answer.status_code for answer in answers] == [200] * NUM_PROMPTS
    assert min(answer.json()["usage"]["prompt_tokens"] for answer in answers) > 1200
    assert late.status_code == 503
    assert late.json()["error"]["code"] == "server_is_overloaded"
