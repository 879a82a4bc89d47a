"""Model servers for tests: a function makes each reply."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from gateway.cli.outcomes.model_server import ModelServer, Prices

Reply = Callable[[dict[str, Any]], httpx.Response]


def completion(text: str, logprobs: Sequence[float] = ()) -> httpx.Response:
    """Return a chat completion, with the log probabilities of its tokens."""
    tokens = [
        {
            "token": "x",
            "logprob": one,
            "top_logprobs": [{"token": "x", "logprob": one}, {"token": "y", "logprob": -3.0}],
        }
        for one in logprobs
    ]
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
        "logprobs": {"content": tokens} if tokens else None,
    }
    return httpx.Response(200, json={"choices": [choice], "usage": {"completion_tokens": 7}})


def model_server(reply: Reply, *, name: str = "s", prices: Prices | None = None) -> tuple[ModelServer, list[float]]:
    """Return a server, and the seconds that it let pass."""
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    def handle(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/chat/completions"
        assert request.headers["cache-control"] == "no-store"
        return reply(json.loads(request.content))

    client = httpx.AsyncClient(transport=httpx.MockTransport(handle))
    return ModelServer(client, url="http://host/v1", name=name, prices=prices, wait=wait), waited
