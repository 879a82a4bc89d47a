"""Routes, request ids, and one envelope for everything that goes wrong."""

from __future__ import annotations

import pytest

from engine.frontend.http import health
from tests.engine.frontend.conftest import Running, StartFront, chat

ERRORS = [
    ("GET", "/nowhere", 404, "not_found"),
    ("GET", "/", 404, "not_found"),
    ("GET", "/v1/models/", 404, "model_not_found"),
    ("GET", "/v1/models/other", 404, "model_not_found"),
    ("GET", "//livez", 404, "not_found"),
    ("GET", "/livez/", 404, "not_found"),
    ("POST", "/v1/responses", 404, "not_found"),
    ("GET", "/docs", 404, "not_found"),
    ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
    ("POST", "/v1/models", 405, "method_not_allowed"),
    ("HEAD", "/v1/chat/completions", 405, "method_not_allowed"),
    ("HEAD", "/v1/completions", 405, "method_not_allowed"),
    ("HEAD", "/nowhere", 404, "not_found"),
    ("HEAD", "/v1/models/other", 404, "model_not_found"),
    ("DELETE", "/livez", 405, "method_not_allowed"),
    ("OPTIONS", "/v1/chat/completions", 405, "method_not_allowed"),
    ("POST", "/v1/chat/completions", 415, "unsupported_media_type"),
]


async def test_errors_have_the_envelope(running: Running) -> None:
    for method, path, status, code in ERRORS:
        response = await running.client.request(method, path)
        assert response.status_code == status
        assert response.headers["x-request-id"]
        if method == "HEAD":
            assert response.content == b""
        else:
            error = response.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert (error["code"], error["type"]) == (code, "invalid_request_error")
        if status == 405:
            assert response.headers["allow"] in ("GET, HEAD", "POST")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz", "/v1/models", "/v1/models/tiny", "/metrics"])
async def test_head_answers_like_get_without_the_body(running: Running, path: str) -> None:
    await running.core()
    head, get = await running.client.head(path), await running.client.get(path)
    assert (head.status_code, head.content, get.status_code) == (200, b"", 200)
    assert head.headers["content-type"] == get.headers["content-type"]
    assert "content-length" in head.headers


async def test_a_fault_of_ours_is_a_500_with_the_request_id_and_nothing_else(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "generate_latest", lambda registry: 1 / 0)
    response = await running.client.get("/metrics", headers={"x-request-id": "mine"})
    assert (response.status_code, response.headers["x-request-id"]) == (500, "mine")
    error = response.json()["error"]
    assert (error["code"], error["message"]) == ("internal_error", "Internal error; request id mine.")
    assert (await running.client.get("/livez")).status_code == 200


OTHER_MEDIA = [
    {"content-type": "text/plain"},
    {"content-type": "multipart/form-data; boundary=x"},
    {"content-type": "application/json", "content-encoding": "gzip"},
]


async def test_other_media_types_are_a_415(running: Running) -> None:
    for headers in OTHER_MEDIA:
        response = await running.client.post("/v1/chat/completions", content=b"{}", headers=headers)
        assert response.status_code == 415


async def test_a_bad_body_is_a_400_before_the_core_is_ready(start_front: StartFront) -> None:
    async with start_front(starts_up=False) as running:
        headers = {"content-type": "application/json; charset=utf-8"}
        response = await running.client.post("/v1/chat/completions", content=b"[" * 10_000, headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")
        response = await running.client.post("/v1/chat/completions", json=chat(n=0))
        assert response.json()["error"]["param"] == "n"


HARMLESS_IDS = ["abc-123", "a.b:c_d"]


async def test_a_harmless_request_id_is_stored(running: Running) -> None:
    for given in HARMLESS_IDS:
        response = await running.client.get("/livez", headers={"x-request-id": given})
        assert response.headers["x-request-id"] == given


STRANGE_IDS = ["", "a b", "x" * 200, "é".encode().decode("latin-1"), "a;b"]


async def test_a_strange_request_id_is_replaced(running: Running) -> None:
    for given in STRANGE_IDS:
        response = await running.client.get("/livez", headers=[(b"x-request-id", given.encode("latin-1"))])
        assert response.headers["x-request-id"] not in (given, "")
