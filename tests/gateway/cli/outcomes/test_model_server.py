"""One model's server: odds where it gives them, patience where it is busy, and clear errors."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gateway.cli.outcomes.model_server import MAX_TRIES
from gateway.cli.outcomes.prompt_file import OutcomesError
from tests.gateway.cli.outcomes.servers import completion, model_server

MESSAGES = ({"role": "user", "content": "hi"},)


async def test_odds_come_with_the_answer_where_they_are_wanted() -> None:
    seen: list[dict[str, Any]] = []

    def reply(body: dict[str, Any]) -> httpx.Response:
        seen.append(body)
        return completion("yes", [-0.5, -1.0] if body.get("logprobs") else [])

    server, _ = model_server(reply)
    answer = await server.answer(MESSAGES, max_tokens=9, wants_odds=True)
    assert (answer.text, answer.num_tokens) == ("yes", 7)
    assert [(token.logprob, token.margin) for token in answer.odds] == [(-0.5, 2.5), (-1.0, 2.0)]
    assert (await server.answer(MESSAGES, max_tokens=9)).odds == ()
    assert seen[0]["max_tokens"] == 9
    assert seen[0]["temperature"] == 0


async def test_a_server_that_refuses_log_probabilities_is_not_requested_for_them_again() -> None:
    bodies: list[dict[str, Any]] = []

    def reply(body: dict[str, Any]) -> httpx.Response:
        bodies.append(body)
        return httpx.Response(400, text="logprobs?") if "logprobs" in body else completion("yes")

    server, _ = model_server(reply)
    for _ in range(2):
        assert (await server.answer(MESSAGES, max_tokens=9, wants_odds=True)).text == "yes"
    assert ["logprobs" in body for body in bodies] == [True, False, False]
    assert not server.gives_odds


async def test_a_busy_server_is_given_the_time_that_it_states() -> None:
    replies = iter([httpx.Response(429, headers={"retry-after": "7"}), httpx.Response(503), completion("at last")])
    server, waited = model_server(lambda _: next(replies))
    assert (await server.answer(MESSAGES, max_tokens=9)).text == "at last"
    assert waited == [7.0, 4.0]


async def test_patience_has_an_end() -> None:
    server, waited = model_server(lambda _: httpx.Response(503, headers={"retry-after": "60"}, text="full"))
    with pytest.raises(OutcomesError, match="s at http://host/v1 answers 503: full"):
        await server.answer(MESSAGES, max_tokens=9)
    assert waited == [60.0] * (MAX_TRIES - 1)


async def test_a_server_that_wants_hours_is_not_waited_for() -> None:
    server, waited = model_server(lambda _: httpx.Response(429, headers={"retry-after": "9999"}, text="quota"))
    with pytest.raises(OutcomesError, match="answers 429: quota"):
        await server.answer(MESSAGES, max_tokens=9)
    assert waited == []


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [({"retry-after": "\u00b2"}, 2.0), ({"retry-after": "1.5"}, 1.5), ({"retry-after-ms": "250"}, 0.25)],
)
async def test_every_form_of_a_stated_time_is_read(headers: dict[str, str], wait_s: float) -> None:
    raw = {key: value.encode("latin-1") for key, value in headers.items()}
    replies = iter([httpx.Response(429, headers=raw), completion("yes")])  # type: ignore[arg-type]
    server, waited = model_server(lambda _: next(replies))
    await server.answer(MESSAGES, max_tokens=9)
    assert waited == [wait_s]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("<think>12?</think>\n\n13", "13"),
        ("12?</think>13", "13"),
        ("<think>Well, 12", ""),
        (None, ""),
        ("a < b", "a < b"),
    ],
)
async def test_thoughts_are_no_part_of_an_answer(content: str | None, text: str) -> None:
    message = {"content": content, "reasoning_content": "Hmm."}
    choice = {"index": 0, "message": message, "finish_reason": "length"}
    server, _ = model_server(lambda _: httpx.Response(200, json={"choices": [choice]}))
    answer = await server.answer(MESSAGES, max_tokens=9)
    assert (answer.text, answer.is_cut) == (text, True)


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (httpx.Response(401, text="no\nkey"), "answers 401: no key"),
        (httpx.Response(404, text="no"), "answers 404: no .is it the base URL"),
        (httpx.Response(307, headers={"location": "https://x/"}), "answers 307: https://x/"),
        (httpx.Response(200, text="[" * 100_000), "no chat completion"),
        (httpx.Response(200, text="<html>"), "no chat completion"),
        (httpx.Response(200, json={"choices": []}), "no chat completion"),
        (httpx.Response(200, json={"choices": [{"message": {"content": [1]}}]}), "content is no text"),
    ],
)
async def test_other_replies_are_errors_at_once(response: httpx.Response, message: str) -> None:
    server, waited = model_server(lambda _: response)
    with pytest.raises(OutcomesError, match=message):
        await server.answer(MESSAGES, max_tokens=9)
    assert waited == []


@pytest.mark.parametrize(
    ("error", "num_waits"),
    [
        (httpx.ConnectError, 0),
        (httpx.UnsupportedProtocol, 0),
        (httpx.ReadTimeout, 1),
        (httpx.RemoteProtocolError, MAX_TRIES - 1),
    ],
)
async def test_a_silent_server_is_tried_again_and_an_absent_one_is_not(
    error: type[httpx.HTTPError], num_waits: int
) -> None:
    def refuse(_: dict[str, Any]) -> httpx.Response:
        raise error("no answer")

    server, waited = model_server(refuse)
    with pytest.raises(OutcomesError, match="s at http://host/v1: no answer"):
        await server.answer(MESSAGES, max_tokens=9)
    assert len(waited) == num_waits
