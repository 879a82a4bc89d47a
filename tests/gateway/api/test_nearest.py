"""A path without a route leads to the endpoint that its client means, at the gateway and at the engine alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from engine.frontend.http.nearest import likeliest_route
from gateway.api.nearest import nearest_endpoint, shown_path
from tests.gateway.stack import chat, running

ENDPOINTS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/models/{model:path}", "/v1/messages"),
    *("/v1/messages/count_tokens", "/v1/feedback", "/tokenize", "/detokenize", "/livez", "/health"),
)
MEANT = {
    "/v1/chat/completion": "/v1/chat/completions",
    "/chat/completions": "/v1/chat/completions",
    "/v1/chat/completions/": "/v1/chat/completions",
    "//v1//chat/completions": "/v1/chat/completions",
    "/v1/v1/chat/completions": "/v1/chat/completions",
    "/V1/Chat/Completions": "/v1/chat/completions",
    "/openai/deployments/gpt-4o/chat/completions": "/v1/chat/completions",
    "/v1/chat": "/v1/chat/completions",
    "/v1/completion": "/v1/completions",
    "/model": "/v1/models",
    "/api/v1/models": "/v1/models",
    "/v1/messages/count_token": "/v1/messages/count_tokens",
    "/v1/tokenize": "/tokenize",
    "/healthz": "/health",
    "/": None,
    "/v1": None,
    "/metrics": None,
    "/admin": None,
    "/docs": None,
    "/" + "a" * 8000: None,
}


@pytest.mark.parametrize("nearest", [nearest_endpoint, likeliest_route])
@pytest.mark.parametrize(("path", "meant"), MEANT.items())
def test_the_nearest_endpoint_is_the_one_that_is_meant(
    nearest: Callable[[str, Iterable[str]], str | None], path: str, meant: str | None
) -> None:
    assert nearest(path, ENDPOINTS) == meant


def test_a_path_is_shown_short_and_without_control_characters() -> None:
    assert shown_path("/a\x1b[2J\u202eb") == "/a?[2J?b"
    assert len(shown_path("/" * 8000)) == 128


async def test_a_404_names_the_path_and_the_nearest_endpoint(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        near = await stack.call(chat(), path="/v1/chat/completion")
        far = await stack.get("/nothing")
        operators = await stack.get("/metrics")
        clients = await stack.call(chat(), path="/v1/chat/completions", admin=True)
        misspelt = await stack.get("/admin/api/polic", admin=True)
    assert near.error["message"] == ("There is nothing at '/v1/chat/completion'. Did you mean /v1/chat/completions?")
    assert far.error["message"] == "There is nothing at '/nothing'. The API is under /v1/."
    assert "`admin.listen`" in operators.error["message"]
    assert "`public.listen`" in clients.error["message"]
    assert "Did you mean /admin/api/policy" in misspelt.error["message"]
