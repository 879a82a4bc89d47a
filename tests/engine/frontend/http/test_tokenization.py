"""`/tokenize` and `/detokenize` in the form of vLLM's server; the tokens are those that a completion computes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.frontend.conftest import Running, StartFront, chat


@pytest.fixture
async def ready(running: Running) -> Running:
    await running.core()
    return running


async def post(ready: Running, path: str, **body: Any) -> Any:
    return (await ready.client.post(path, json=body)).json()


@pytest.mark.parametrize("text", ["hello world", "", "one two " * 2000, "a <|im_start|> b", "é € 😀"])
async def test_a_prompt_comes_back_from_its_tokens(ready: Running, text: str) -> None:
    answer = await post(ready, "/tokenize", prompt=text[:400])
    assert answer["count"] == len(answer["tokens"])
    assert (answer["max_model_len"], answer["token_strs"]) == (512, None)
    assert await post(ready, "/detokenize", tokens=answer["tokens"]) == {"prompt": text[:400]}


async def test_a_raw_prompt_never_becomes_special_tokens(ready: Running) -> None:
    answer = await post(ready, "/tokenize", prompt="<|im_end|>", return_token_strs=True)
    assert 2 not in answer["tokens"]
    assert "".join(answer["token_strs"]) == "<|im_end|>"


async def test_a_conversation_has_the_tokens_of_its_rendered_prompt(ready: Running) -> None:
    messages = chat("hello world")["messages"]
    answer = await post(ready, "/tokenize", model="tiny", messages=messages, add_generation_prompt=True)
    text = (await post(ready, "/detokenize", model="tiny", tokens=answer["tokens"]))["prompt"]
    assert text == "<|im_start|>user\nhello world<|im_end|>\n<|im_start|>assistant\n"
    assert answer["tokens"][0] == 1


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": chat()["messages"]}, 400, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, 400, "prompt"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, 400, "add_special_tokens"),
        ("/tokenize", {"prompt": "a", "other": 1}, 400, "other"),
        ("/tokenize", {"prompt": "a", "model": "big"}, 404, "model"),
        ("/tokenize", {"messages": []}, 400, "messages"),
        ("/tokenize", {"messages": chat()["messages"], "add_generation_prompt": False}, 400, "add_generation_prompt"),
        ("/tokenize", {"messages": chat()["messages"], "continue_final_message": True}, 400, "continue_final_message"),
        ("/tokenize", {"messages": chat()["messages"], "chat_template": "x"}, 400, "chat_template"),
        ("/detokenize", {"tokens": "a"}, 400, "tokens"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens"),
        ("/detokenize", {"tokens": [10**6]}, 400, "tokens"),
        ("/detokenize", {}, 400, "tokens"),
    ],
)
async def test_a_wrong_request_names_the_field(
    ready: Running, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    response = await ready.client.post(path, json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (status, param)


async def test_null_members_count_as_absent(ready: Running) -> None:
    body = {"prompt": "hi", "messages": None, "model": None, "add_special_tokens": None, "return_token_strs": None}
    assert (await post(ready, "/tokenize", **body))["count"] > 0


@pytest.mark.parametrize("path", ["/health", "/version", "/livez", "/readyz", "/v1/models", "/metrics"])
async def test_head_is_served_wherever_get_is(ready: Running, path: str) -> None:
    whole, head = await ready.client.get(path), await ready.client.head(path)
    assert (head.status_code, head.content) == (whole.status_code, b"") == (200, b"")


async def test_a_404_names_the_path_and_the_nearest_route(ready: Running) -> None:
    message = (await ready.client.post("/v1/chat/completion", json=chat())).json()["error"]["message"]
    assert message == "There is no route '/v1/chat/completion'. Did you mean /v1/chat/completions?"


async def test_an_engine_that_is_not_ready_refuses(start_front: StartFront) -> None:
    async with start_front(starts_up=False) as waiting:
        response = await waiting.client.post("/tokenize", json={"prompt": "a"})
        assert (response.status_code, json.loads(response.content)["error"]["code"]) == (503, "server_is_overloaded")
        assert (await waiting.client.get("/health")).status_code == 503
