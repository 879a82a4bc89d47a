"""Paths and methods of the public listener."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.admission.test_request_reader import assert_envelope
from tests.gateway.stack import chat, running


@pytest.mark.parametrize("path", ["/v1/messages/batches", "/", "/docs", "//admin"])
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
