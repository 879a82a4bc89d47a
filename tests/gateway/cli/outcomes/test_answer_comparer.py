"""Comparison by a third model: both orders are compared, so a preference for a place is no verdict."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gateway.cli.outcomes.answer_comparer import AnswerComparer
from gateway.cli.outcomes.prompt_file import ComparedPrompt, OutcomesError
from tests.gateway.cli.outcomes.servers import Reply, completion, model_server

PROMPT = ComparedPrompt(prompt="Capital of France?", answer="Paris")


def comparer(reply: Reply) -> AnswerComparer:
    return AnswerComparer(model_server(reply, name="j")[0])


def _prefers_paris(body: dict[str, Any]) -> httpx.Response:
    shown = body["messages"][1]["content"]
    first = shown.partition("<answer A>")[2].partition("</answer A>")[0]
    return completion("A" if "Paris" in first else "**B**")


@pytest.mark.parametrize(
    ("small", "large", "scores"),
    [
        ("Rome", "Paris", (0.0, 1.0)),
        ("Paris", "Rome", (1.0, 0.0)),
        ("Paris ", " Paris", (1.0, 1.0)),
        ("", " ", (0.0, 0.0)),
        ("", "Rome", (0.0, 1.0)),
    ],
)
async def test_the_better_answer_wins_wherever_it_stands(small: str, large: str, scores: tuple[float, float]) -> None:
    assert await comparer(_prefers_paris).scores(PROMPT, small, large) == scores


@pytest.mark.parametrize(
    ("word", "scores"),
    [
        ("A", (0.5, 0.5)),
        ("tie", (1.0, 1.0)),
        ("It is a TIE.", (1.0, 1.0)),
        ("It's a tie.", (1.0, 1.0)),
        ("A is right, B is not.\n\nVerdict: **A**", (0.5, 0.5)),
    ],
)
async def test_a_model_that_likes_a_place_decides_nothing(word: str, scores: tuple[float, float]) -> None:
    assert await comparer(lambda _: completion(word)).scores(PROMPT, "x", "y") == scores


async def test_the_third_model_sees_the_right_answer() -> None:
    seen: list[str] = []

    def reply(body: dict[str, Any]) -> httpx.Response:
        seen.append(body["messages"][1]["content"])
        return completion("TIE")

    await comparer(reply).scores(PROMPT, "x", "y")
    assert all("<reference>\nParis" in text for text in seen)


@pytest.mark.parametrize("text", ["who knows", "A is better than B", "B, or maybe A", "", "I like a good answer"])
async def test_a_reply_without_a_plain_verdict_is_an_error(text: str) -> None:
    with pytest.raises(OutcomesError, match="j gave no verdict: '"):
        await comparer(lambda _: completion(text)).scores(PROMPT, "x", "y")


async def test_verdicts_that_change_with_the_order_are_counted() -> None:
    biased, fair = comparer(lambda _: completion("A")), comparer(_prefers_paris)
    for one in (biased, fair):
        await one.scores(PROMPT, "Rome", "Paris")
    assert (biased.num_contradicted, fair.num_contradicted) == (1, 0)
    assert biased.num_compared == fair.num_compared == 1


async def test_the_end_of_a_long_request_is_shown_and_parts_are_shown_as_text() -> None:
    seen: list[str] = []

    def reply(body: dict[str, Any]) -> httpx.Response:
        seen.append(body["messages"][1]["content"])
        return completion("TIE")

    parts = [{"type": "text", "text": "word " * 9_000}, {"type": "text", "text": "Which one?"}]
    long = ComparedPrompt(messages=({"role": "user", "content": parts},))
    await comparer(reply).scores(long, "x", "y")
    assert all("Which one?\n</request>" in text and "'type'" not in text for text in seen)
