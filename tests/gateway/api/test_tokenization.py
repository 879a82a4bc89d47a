"""Prompts become tokens at a deployment of the model's route that has the endpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gateway.scripted import Wire
from tests.gateway.stack import running

TOKENS = {"count": 2, "max_model_len": 512, "tokens": [5, 7], "token_strs": None}
BASED = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock:/base/v1", model: tiny}}
"""


async def tokens(wire: Wire) -> None:
    await wire.answer(json.dumps(TOKENS).encode())


async def lacking(wire: Wire) -> None:
    await wire.answer(b'{"detail": "Not Found"}', 404)


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
async def test_a_request_goes_to_the_models_deployment_with_its_own_name_for_the_model(
    tmp_path: Path, path: str
) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts.append(tokens)
        body = {"prompt": "hi", "tokens": [5], "add_special_tokens": False, "new_field": {"a": None}}
        reply = await stack.call(body, path=path)
        received = stack.small.received[-1]
    assert (reply.status, reply.json) == (200, TOKENS)
    assert reply.headers["x-penstock-deployment"] == "small"
    assert received.line == f"POST {path} HTTP/1.1"
    assert received.json == {**body, "model": "tiny"}


async def test_a_deployment_without_the_endpoint_leaves_it_to_the_next(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts.append(lacking)
        stack.large.scripts.append(tokens)
        assert (await stack.call({"prompt": "hi"}, path="/tokenize")).headers["x-penstock-deployment"] == "large"


async def test_where_no_deployment_has_it_the_error_names_the_remedy(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts.append(lacking)
        reply = await stack.call({"model": "tiny", "prompt": "hi"}, path="/tokenize")
    assert (reply.status, reply.error["param"]) == (404, "model")
    assert "model 'tiny' has /tokenize: 'small' answered that there is no such endpoint" in reply.error["message"]
    assert "Name a model that the bundled engine or vLLM serves" in reply.error["message"]


async def test_a_url_with_the_apis_base_has_the_endpoint_beside_it(tmp_path: Path) -> None:
    async with running(tmp_path, policy=BASED.format(folder=tmp_path)) as stack:
        stack.small.scripts.append(tokens)
        assert (await stack.call({"prompt": "hi"}, path="/tokenize")).status == 200
        assert stack.small.received[-1].line == "POST /base/tokenize HTTP/1.1"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"prompt": 5}, "prompt", "invalid_value"),
        ({"prompt": "hi", "model": ["a"]}, "model", "invalid_value"),
        ({"prompt": "hi", "model": "none"}, "model", "model_not_found"),
        ({"messages": [], "chat_template": "{{ 1 }}"}, "chat_template", "unsupported_parameter"),
    ],
)
async def test_what_is_wrong_is_named(tmp_path: Path, body: object, param: str, code: str) -> None:
    async with running(tmp_path) as stack:
        error = (await stack.call(body, path="/tokenize")).error
        assert (error["param"], error["code"]) == (param, code)
        assert not [each for each in stack.small.received if each.line.startswith("POST")]


async def test_a_refusal_of_the_deployment_is_passed_back_and_a_failure_is_a_502(tmp_path: Path) -> None:
    async def refuse(wire: Wire) -> None:
        await wire.answer(b'{"error": {"message": "tokens: too many", "type": "x", "param": null, "code": null}}', 400)

    async def fail(wire: Wire) -> None:
        await wire.answer(b"{}", 500)

    async with running(tmp_path) as stack:
        stack.small.scripts += [refuse, fail]
        stack.large.scripts.append(fail)
        refused = await stack.call({"tokens": [1]}, path="/detokenize")
        assert (refused.status, refused.error["message"]) == (400, "tokens: too many")
        assert (await stack.call({"tokens": [1]}, path="/detokenize")).status == 502


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz", "/health", "/version", "/v1/models"])
async def test_head_is_served_wherever_get_is(tmp_path: Path, path: str) -> None:
    async with running(tmp_path) as stack:
        whole, head = await stack.get(path), await stack.call(None, path=path, method="HEAD")
        assert (head.status, head.body) == (whole.status, b"") == (200, b"")
        assert head.headers["content-length"] == whole.headers["content-length"]


@pytest.mark.parametrize("path", ["/health", "/version", "/metrics", "/openapi.json", "/admin/api/overview"])
async def test_head_is_served_wherever_get_is_for_operators(tmp_path: Path, path: str) -> None:
    async with running(tmp_path) as stack:
        assert (await stack.get(path, admin=True)).status == 200
        head = await stack.call(None, path=path, method="HEAD", admin=True)
        assert (head.status, head.body) == (200, b"")


async def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        assert set((await stack.get("/version")).json) == {"version"}
