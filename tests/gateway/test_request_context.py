"""A request's state on its way, and the headers that tell of it."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.stack import chat, running


async def test_an_answer_carries_the_contract_headers(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        for reply in (await stack.call(chat()), await stack.call(chat(stream=True))):
            assert reply.headers["x-request-id"].startswith("req_")
            assert reply.headers["x-penstock-cache"] == "bypass"
            assert reply.headers["x-penstock-deployment"] == "small"
            assert reply.headers["x-penstock-route"] == "main"
            assert reply.headers["x-penstock-policy"] == stack.gateway._current().revision
            stages = [part.partition(";dur=")[0] for part in reply.headers["server-timing"].split(", ")]
            assert stages == ["admit", "trim", "cache", "route", "queue", "upstream"]
            assert "x-penstock-error-code" not in reply.headers
