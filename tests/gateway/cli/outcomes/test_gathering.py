"""Gathering: bounded, in the training's format, and with an end where everything fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.cli.outcomes.answer_comparer import AnswerComparer
from gateway.cli.outcomes.gathering import MAX_FAILURES, ModelComparison, estimated, gather_outcomes
from gateway.cli.outcomes.model_server import Prices
from gateway.cli.outcomes.prompt_file import ComparedPrompt, OutcomeFile, OutcomesError
from gateway.cli.outcomes.quality_training import read_lines
from routing_policies.quality.confidence import TokenOdds
from tests.gateway.cli.outcomes.servers import completion, model_server

PROMPTS = [ComparedPrompt(prompt=f"Say {number}.", answer=str(number), category="echo") for number in range(20)]


def _echo(body: dict[str, Any]) -> httpx.Response:
    return completion(body["messages"][-1]["content"], [-0.25] if body.get("logprobs") else [])


def comparison(**kwargs: Any) -> ModelComparison:
    small, _ = model_server(kwargs.pop("small", _echo), name="s", prices=Prices(1.0, 2.0))
    large, _ = model_server(kwargs.pop("large", lambda _: completion("no idea")), name="l")
    return ModelComparison(**{"small": small, "large": large, "scorer": "number", "max_tokens": 10, **kwargs})


async def test_lines_are_what_the_training_reads(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with OutcomeFile(path, ("s", "l")) as file:
        done = await gather_outcomes(comparison(), PROMPTS, file, concurrency=3)
    assert (done.num_done, done.num_failed, done.has_odds) == (20, 0, True)
    lines = list(read_lines([path]))
    outcome = lines[0].as_outcome("s", "l")
    assert (outcome.lost, outcome.category, outcome.odds, outcome.num_tokens) == (
        -1.0,
        "echo",
        (TokenOdds(-0.25, 2.75),),
        7,
    )
    assert {line.as_prompt().text for line in lines} == {one.prompt for one in PROMPTS}


async def test_no_more_prompts_are_under_way_than_allowed(tmp_path: Path) -> None:
    running = most = 0

    class Counting(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return completion("1")

    compared = comparison()
    for server in (compared.small, compared.large):
        server._client = httpx.AsyncClient(transport=Counting())
    with OutcomeFile(tmp_path / "out.jsonl", ("s", "l")) as file:
        await gather_outcomes(compared, PROMPTS, file, concurrency=2)
    assert 2 <= most <= 4  # both models of two prompts


async def test_a_prompt_that_fails_is_left_for_the_next_run(tmp_path: Path) -> None:
    def reply(body: dict[str, Any]) -> httpx.Response:
        return httpx.Response(400, text="too long") if body["messages"][0]["content"] == "Say 3." else _echo(body)

    path = tmp_path / "out.jsonl"
    shown: list[str] = []
    with OutcomeFile(path, ("s", "l")) as file:
        done = await gather_outcomes(comparison(small=reply), PROMPTS, file, concurrency=4, on_failure=shown.append)
    assert shown == [done.first_failure]
    assert (done.num_done, done.num_failed) == (19, 1)
    assert "too long" in str(done.first_failure)
    assert PROMPTS[3].key not in OutcomeFile(path, ("s", "l")).keys


async def test_when_everything_fails_it_ends_soon(tmp_path: Path) -> None:
    sent = 0

    def refuse(_: dict[str, Any]) -> httpx.Response:
        nonlocal sent
        sent += 1
        return httpx.Response(401, text="no key")

    with (
        OutcomeFile(tmp_path / "out.jsonl", ("s", "l")) as file,
        pytest.raises(OutcomesError, match=f"{MAX_FAILURES} prompts failed one after the other.*401: no key"),
    ):
        await gather_outcomes(comparison(large=refuse), PROMPTS, file, concurrency=2)
    assert sent <= MAX_FAILURES + 1


async def test_prompts_that_cannot_be_compared_do_not_keep_the_others_from_it(tmp_path: Path) -> None:
    def reply(body: dict[str, Any]) -> httpx.Response:
        is_long = int(body["messages"][0]["content"][4:-1]) < MAX_FAILURES + 3
        return httpx.Response(400, text="too long") if is_long else _echo(body)

    path = tmp_path / "out.jsonl"
    with (
        OutcomeFile(path, ("s", "l")) as file,
        pytest.raises(OutcomesError, match="too long; if others may succeed, put one of those first"),
    ):
        await gather_outcomes(comparison(small=reply), PROMPTS, file, concurrency=1)
    with OutcomeFile(path, ("s", "l")) as file:
        done = await gather_outcomes(comparison(small=reply), [PROMPTS[-1], *PROMPTS[:-1]], file, concurrency=1)
    assert (done.num_done, done.num_failed) == (7, MAX_FAILURES + 3)


async def test_a_model_that_often_states_no_verdict_is_no_reason_to_end(tmp_path: Path) -> None:
    third, _ = model_server(
        lambda body: completion("B" if "Say 0." in str(body) else "I cannot compare them."), name="j"
    )
    with OutcomeFile(tmp_path / "out.jsonl", ("s", "l")) as file:
        done = await gather_outcomes(comparison(scorer=AnswerComparer(third)), PROMPTS, file, concurrency=1)
    assert (done.num_done, done.num_failed) == (1, 19)
    assert "j gave no verdict" in str(done.first_failure)


def test_the_estimate_counts_every_answer_in_full_and_the_third_model_in_both_orders() -> None:
    third, _ = model_server(lambda _: completion("TIE"), name="j")
    found = estimated(comparison(scorer=AnswerComparer(third)), PROMPTS)
    assert found.num_requests == {"small": 20, "large": 20, "judge": 40}
    assert found.num_completion_tokens["small"] == 200
    assert found.num_prompt_tokens["judge"] > 2 * (found.num_prompt_tokens["small"] + 400)
    assert found.costs["small"] == pytest.approx((found.num_prompt_tokens["small"] + 400) / 1e6)
    assert found.costs["large"] is None


async def test_answers_without_text_and_cut_answers_are_counted(tmp_path: Path) -> None:
    choice = {"index": 0, "message": {"content": None, "reasoning_content": "Hm"}, "finish_reason": "length"}
    compared = comparison(small=lambda _: httpx.Response(200, json={"choices": [choice]}))
    with OutcomeFile(tmp_path / "out.jsonl", ("s", "l")) as file:
        done = await gather_outcomes(compared, PROMPTS, file, concurrency=2)
    assert (done.num_empty, done.num_cut) == ({"small": 20, "large": 0}, {"small": 20, "large": 0})
