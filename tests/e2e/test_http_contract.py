"""The wire's tables of endpoints and response headers, held against the running product."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Stack
from tests.e2e.engine import engine_client
from tests.e2e.raw import chat

pytestmark = pytest.mark.e2e

ENVELOPE_KEYS = {"message", "type", "param", "code"}
PUBLIC_GETS = {
    "/v1/models": {"object", "data"},
    "/v1/models/auto": {"id", "object", "created", "owned_by", "capabilities", "context_length"},
    "/livez": {"status"},
    "/readyz": {"status", "policy", "deployments"},
    "/startupz": {"status", "policy", "deployments"},
}
ABSENT = ("/v1/audio/speech", "/v1/images/generations", "/v1/moderations", "/v1/files", "/v1/chat/completion")
ADMIN_ONLY = ("/metrics", "/openapi.json")
ENGINE_GETS = ("/v1/models", "/livez", "/readyz", "/metrics")
UNCACHED = {"cache-control": "no-cache"}
"""For tests of what a deployment answers; the shipped policy caches."""
CHAT_HEADERS = {
    "x-request-id": r"req_[0-9a-f]{24}",
    "x-penstock-cache": "hit-exact|hit-semantic|miss|bypass",
    "x-penstock-deployment": "small|large",
    "x-penstock-route": "auto",
    "x-penstock-policy": r"[0-9a-f]{12}",
    "server-timing": "admit;dur=N, trim;dur=N, cache;dur=N, route;dur=N, queue;dur=N, upstream;dur=N".replace(
        "N", r"\d+\.\d+"
    ),
}
STAGES = {"read", "admit", "trim", "cache", "route", "queue", "connect", "upstream_first_byte", "relay"}


@pytest.fixture(scope="module")
def public(stack: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stack.url, timeout=120.0) as client:
        yield client


@pytest.fixture(scope="module")
def admin(stack: Stack) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stack.admin_url, timeout=120.0) as client:
        yield client


def assert_not_found(response: httpx.Response) -> None:
    assert response.status_code == 404
    error = response.json()["error"]
    assert error.keys() == ENVELOPE_KEYS
    assert (error["type"], error["code"]) == ("invalid_request_error", "not_found")
    assert response.headers["x-penstock-error-code"] == "not_found"
    assert re.fullmatch(CHAT_HEADERS["x-request-id"], response.headers["x-request-id"])


def events(text: str) -> list[Any]:
    """The JSON of every event but `[DONE]`."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


# Endpoints


@pytest.mark.parametrize("path", PUBLIC_GETS)
def test_public_reads_answer_with_their_keys_and_a_request_id(public: httpx.Client, path: str) -> None:
    response = public.get(path)
    assert response.status_code == 200
    assert response.json().keys() == PUBLIC_GETS[path]
    assert re.fullmatch(CHAT_HEADERS["x-request-id"], response.headers["x-request-id"])


def test_models_are_the_alias_and_the_deployments(public: httpx.Client) -> None:
    listed = [model["id"] for model in public.get("/v1/models").json()["data"]]
    assert listed[0] == "auto"
    assert {"penstock-small", "penstock-large"} <= set(listed)
    assert public.get("/v1/models/nobody").json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ABSENT)
def test_surfaces_that_do_not_exist_are_404_in_the_envelope(
    public: httpx.Client, admin: httpx.Client, method: str, path: str
) -> None:
    for client in (public, admin):
        assert_not_found(client.request(method, path))


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz"])
def test_probes_answer_on_both_listeners(public: httpx.Client, admin: httpx.Client, path: str) -> None:
    assert public.get(path).status_code == admin.get(path).status_code == 200


@pytest.mark.parametrize("path", ADMIN_ONLY)
def test_what_is_for_operators_is_on_the_admin_listener_only(
    public: httpx.Client, admin: httpx.Client, path: str
) -> None:
    assert admin.get(path).status_code == 200
    assert_not_found(public.get(path))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models"])
def test_the_public_api_is_not_on_the_admin_listener(admin: httpx.Client, path: str) -> None:
    assert_not_found(admin.get(path))


@pytest.mark.parametrize("name", ["small", "large"])
def test_an_engine_alone_serves_its_endpoints(stack: Stack, name: str) -> None:
    with engine_client(stack, name) as client:
        for path in ENGINE_GETS:
            assert client.get(path).status_code == 200
        own = chat(model=f"penstock-{name}")
        assert client.post("/v1/chat/completions", json=own).json()["object"] == "chat.completion"
        plain = {"model": f"penstock-{name}", "prompt": "1 + 1 =", "max_tokens": 2}
        assert client.post("/v1/completions", json=plain).json()["object"] == "text_completion"
        assert client.get("/nowhere").json()["error"].keys() == ENVELOPE_KEYS


# Response headers


@pytest.mark.parametrize("stream", [False, True])
def test_chat_answers_carry_every_header_of_the_table(public: httpx.Client, stream: bool) -> None:
    response = public.post("/v1/chat/completions", json=chat(stream=stream), headers=UNCACHED)
    assert response.status_code == 200
    for name, pattern in CHAT_HEADERS.items():
        assert re.fullmatch(pattern, response.headers[name]), (name, response.headers[name])
    assert "age" not in response.headers
    assert "x-penstock-degraded" not in response.headers
    assert "x-penstock-error-code" not in response.headers


def test_the_deployment_and_route_are_those_that_answered(public: httpx.Client) -> None:
    response = public.post("/v1/chat/completions", json=chat(model="penstock-small"))
    assert response.headers["x-penstock-deployment"] == "small"
    assert response.headers["x-penstock-route"] == "implied-direct"


def test_the_policy_header_is_the_revision_in_force(public: httpx.Client) -> None:
    response = public.post("/v1/chat/completions", json=chat())
    assert response.headers["x-penstock-policy"] == public.get("/readyz").json()["policy"]


def test_the_request_id_is_the_gateways_and_never_the_clients(public: httpx.Client) -> None:
    sent = {"x-request-id": "mine", "x-client-request-id": "mine too"}
    first, second = (public.post("/v1/chat/completions", json=chat(), headers=sent) for _ in range(2))
    assert "mine" not in first.headers["x-request-id"]
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


def test_a_shed_carries_when_and_why(public: httpx.Client) -> None:
    response = public.post("/v1/chat/completions", json=chat(), headers={"x-stainless-timeout": "0.000001"})
    assert response.status_code == 503
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert 1000 <= int(response.headers["retry-after-ms"]) <= 60_000
    assert response.headers["x-should-retry"] == "false"
    assert response.headers["x-penstock-shed-reason"] == "deadline"
    degraded = response.json()["error"]["degraded"]
    assert degraded.keys() == {"reason", "lane", "queue_depth", "predicted_wait_ms", "hint"}
    assert (degraded["reason"], degraded["lane"]) == ("deadline", "interactive")


# x-penstock-timing


@pytest.mark.parametrize("stream", [False, True])
def test_full_timing_comes_last_with_the_gateways_and_the_engines_stages(public: httpx.Client, stream: bool) -> None:
    headers = {"x-penstock-timing": "full", **UNCACHED}
    response = public.post("/v1/chat/completions", json=chat(stream=stream), headers=headers)
    *before, last = events(response.text) if stream else [response.json()]
    timing = last["penstock"]["timing"]
    assert timing["gateway"].keys() == STAGES
    assert all(value >= 0 for value in timing["gateway"].values())
    assert {"tokenize_ms", "ttft_ms", "total_ms", "detokenize_ms", "choices"} <= timing["engine"].keys()
    assert {"queue_ms", "prefill_ms", "decode_ms"} <= timing["engine"]["choices"][0].keys()
    assert all("penstock" not in event for event in before)
    if stream:
        assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
def test_nothing_unknown_is_added_unasked(public: httpx.Client, stream: bool) -> None:
    response = public.post("/v1/chat/completions", json=chat(stream=stream))
    for answer in events(response.text) if stream else [response.json()]:
        assert answer.keys() <= {"id", "object", "created", "model", "choices", "usage"}
