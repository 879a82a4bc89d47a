"""Paths and methods of the public listener."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.admission.test_request_reader import assert_envelope
from tests.gateway.stack import chat, running


@pytest.mark.parametrize("path", ["/v1/files", "/", "/docs", "//admin"])
async def test_an_unknown_path_is_a_404(tmp_path: Path, path: str) -> None:
    async with running(tmp_path) as stack:
        for method in ("GET", "POST"):
            assert_envelope(await stack.call(chat(), path=path, method=method), 404, "not_found")


@pytest.mark.parametrize(
    "path", ["/admin", "/admin/..;/", "/%61dmin", "/metrics", "/openapi.json", "/livez/..;/metrics"]
)
async def test_the_public_listener_has_nothing_of_the_admin_one(tmp_path: Path, path: str) -> None:
    async with running(tmp_path) as stack:
        assert (await stack.get(path)).status == 404


async def test_a_wrong_method_is_a_405_with_allow(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.get("/v1/chat/completions")
        assert_envelope(reply, 405, "method_not_allowed")
        assert reply.headers["allow"] == "POST"
        assert (await stack.call(None, path="/v1/models", method="DELETE")).headers["allow"] == "GET, HEAD"


async def test_a_405_allows_the_methods_of_every_route_of_the_path(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(path="/v1/responses/resp_1", method="PUT")
        assert (reply.status, reply.headers["allow"]) == (405, "DELETE, GET, HEAD")


@pytest.mark.parametrize("path", ["/v1/messages/batches", "/v1/messages/"])
async def test_a_path_below_messages_that_has_no_route_is_refused_in_its_envelope(tmp_path: Path, path: str) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call({}, path=path)
        assert (reply.status, reply.json["type"], reply.error["type"]) == (404, "error", "not_found_error")
        assert reply.json["request_id"] == reply.headers["x-request-id"]
        assert path in reply.error["message"]


@pytest.mark.parametrize("path", ["/v1/responses/input_tokens", "/v1/responses/compact", "/v1/responses/resp_1/cancel"])
async def test_an_endpoint_of_responses_that_is_not_served_leads_to_those_that_are(tmp_path: Path, path: str) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call({"model": "auto", "input": "x"}, path=path)
        assert_envelope(reply, 404, "not_found")
        assert f"'{path}' is not served" in reply.error["message"]
        assert "GET and DELETE /v1/responses/{id}" in reply.error["message"]
