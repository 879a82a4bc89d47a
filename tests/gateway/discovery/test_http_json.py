"""Bounded reading of JSON answers."""

from __future__ import annotations

import httpx
import pytest

from gateway.discovery.http_json import UnexpectedStatus, fetch_json
from gateway.discovery.source import SourceError


def client(response: httpx.Response) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.MockTransport(lambda request: response), base_url="http://api")


async def test_an_answer_is_decoded() -> None:
    async with client(httpx.Response(200, json={"a": 1})) as made:
        assert await fetch_json(made, made.build_request("GET", "/"), dict[str, int]) == {"a": 1}


@pytest.mark.parametrize(("status", "reason"), [(401, "token"), (403, "account"), (404, "no such API"), (503, "503")])
async def test_another_status_names_its_remedy(status: int, reason: str) -> None:
    async with client(httpx.Response(status)) as made:
        with pytest.raises(UnexpectedStatus, match=reason):
            await fetch_json(made, made.build_request("GET", "/"), dict[str, int])


async def test_an_answer_without_end_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.discovery.http_json.MAX_ANSWER_BYTES", 1000)
    async with client(httpx.Response(200, content=b"x" * 1001)) as made:
        with pytest.raises(SourceError, match="larger"):
            await fetch_json(made, made.build_request("GET", "/"), dict[str, int])
