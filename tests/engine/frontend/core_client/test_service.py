"""Requests that the service refuses before they reach the core."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.config import FrontConfig
from engine.frontend.core_client.link import CoreLink
from engine.frontend.core_client.metrics import EngineMetrics
from engine.frontend.core_client.queue_guard import QueueLimits
from engine.frontend.core_client.service import EngineService
from engine.frontend.request.errors import ApiError
from engine.frontend.request.headers import RequestOptions
from engine.frontend.request.requests import CompletionRequest
from engine.frontend.resume.resume_request import BegunChoice, ResumeRequest
from engine.frontend.text.handling import TextHandling
from engine.frontend.text.tokenizer import load_tokenizer
from engine.protocol import Phase, Ready
from tests.engine.frontend.conftest import StartFront, chat
from tests.engine.frontend.tiny_model import END

PATH = "/v1/chat/completions"


async def test_a_full_queue_is_shed_at_once(start_front: StartFront) -> None:
    async with start_front(max_waiting=2) as running:
        core = await running.core()
        requests = [asyncio.create_task(running.client.post(PATH, json=chat())) for _ in range(2)]
        adds = [await core.next_add() for _ in requests]
        refused = await running.client.post(PATH, json=chat())
        assert (refused.status_code, refused.headers["x-penstock-shed-reason"]) == (503, "queue_full")
        for add in adds:
            core.emit(add.seq_id, [END], "stop")
        assert [(await request).status_code for request in requests] == [200, 200]


async def test_a_prompt_that_cannot_fit_is_refused_with_both_numbers(start_front: StartFront) -> None:
    async with start_front(max_model_len=64) as running:
        core = await running.core()
        for body in (chat("one two three four. " * 40), chat("x" * 100_000), chat(max_tokens=60)):
            response = await running.client.post(PATH, json=body)
            error = response.json()["error"]
            assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
            assert "64 tokens" in error["message"]
        assert core.adds.empty()


READY = Ready(
    max_model_len=64, block_size=16, num_blocks=9, vocab_size=400, device="cpu", dtype="float32", model_type="fake"
)
OPTIONS = RequestOptions(priority="interactive", deadline_s=None, cache_salt=b"", wants_timing=False)


@pytest.fixture
def service(model_dir: Path) -> EngineService:
    metrics = EngineMetrics()
    return EngineService(
        FrontConfig(listen="unix:/x", model_name="tiny"),
        TextHandling(tokenizer=load_tokenizer(model_dir), template=None),
        CoreLink(metrics, lambda: 0.0, QueueLimits(max_waiting=4)),
        metrics,
        ThreadPoolExecutor(1),
        clock=lambda: 0.0,
        draw_seed=lambda: 7,
    )


def completion(prompt: str | list[int] | list[list[int]], **fields: int) -> CompletionRequest:
    return CompletionRequest(model="tiny", prompt=prompt, **fields)  # type: ignore[arg-type]


def test_the_state_goes_from_starting_over_warming_to_ready_and_draining(service: EngineService) -> None:
    states = [service.state]
    for message in (Phase(name="import", seconds=1.0), Phase(name="weights", seconds=1.0), READY):
        service.link.received(message)
        states.append(service.state)
    assert states == ["starting", "starting", "warming", "ready"]
    assert service.is_ready
    service.drain()
    assert (service.state, service.is_ready) == ("draining", False)


async def test_a_request_is_refused_before_the_core_is_ready_and_while_it_drains(service: EngineService) -> None:
    for reason in ("overload", "draining"):
        with pytest.raises(ApiError) as caught:
            await service.complete(completion("hi"), OPTIONS, 0.0)
        assert (caught.value.status, caught.value.headers["x-penstock-shed-reason"]) == (503, reason)
        service.link.received(READY)
        service.drain()


async def test_a_raw_prompt_of_token_ids_is_taken_as_it_is_within_the_vocabulary(service: EngineService) -> None:
    service.link.received(READY)
    generation = await service.complete(completion([5, 399], n=2), OPTIONS, 0.0)
    assert generation.prompt.prompts == [[5, 399]]
    assert len(generation.choices) == 2
    with pytest.raises(ApiError, match="must have tokens of the vocabulary; got 400"):
        await service.complete(completion([5, 400]), OPTIONS, 0.0)


async def test_a_prompt_with_more_characters_than_can_fit_is_not_tokenized(service: EngineService) -> None:
    service.link.received(READY)
    with pytest.raises(ApiError, match="at least") as caught:
        await service.complete(completion("x" * 1_000_000), OPTIONS, 0.0)
    assert caught.value.code == "context_length_exceeded"


async def test_choices_of_a_stream_that_goes_on_have_their_tokens_and_the_seeds_of_its_beginning(
    service: EngineService,
) -> None:
    service.link.received(READY)
    request = completion([[5], [5]], n=2, max_tokens=4)
    begun = await service.complete(request, OPTIONS, 0.0, ResumeRequest(seed=3))
    choices = {0: BegunChoice((6, 7)), 1: BegunChoice((8,), "stop"), 3: BegunChoice((9, 9, 9, 9), "length")}
    resumed = await service.complete(request, OPTIONS, 0.0, ResumeRequest(seed=3, choices=choices))
    seeds = [params.seed for params in begun.params]
    assert seeds == [params.seed for params in resumed.params]
    assert (seeds[0], len(set(seeds))) == (3, 4)
    assert [choice.finish for choice in resumed.choices] == [None, "stop", None, "length"]
    assert [choice.num_tokens for choice in resumed.choices] == [2, 1, 0, 4]
    assert [choice.unreported for choice in resumed.choices] == [[], None, [], None]
    assert service.answer_digest(begun) == service.answer_digest(resumed)


@pytest.mark.parametrize(
    "choices",
    [{0: BegunChoice((6,), "stop")}, {0: BegunChoice((6, 7, 8, 9))}, {0: BegunChoice((400,))}],
    ids=["all ended", "no room", "no tokens of the vocabulary"],
)
async def test_what_is_no_beginning_of_an_answer_is_refused(
    choices: dict[int, BegunChoice], service: EngineService
) -> None:
    service.link.received(READY)
    with pytest.raises(ApiError) as caught:
        await service.complete(completion([5], max_tokens=4), OPTIONS, 0.0, ResumeRequest(seed=3, choices=choices))
    assert (caught.value.status, caught.value.param) == (400, "penstock_choices")
