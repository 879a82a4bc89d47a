"""Web pages of the origins that an operator lists may read the public listener's responses; others may not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.config.checks import ConfigError
from gateway.config.settings import PublicSettings
from tests.gateway.scripted import hang
from tests.gateway.stack import Reply, Stack, chat, encode, running

PAGE = "https://chat.example.com"
OTHER = "https://chat.example.com.evil.example"
ALLOWED = "access-control-allow-origin"


def allowing(origins: str) -> dict[str, Any]:
    return {"public.cors_origins": origins}


async def preflight(stack: Stack, origin: str, *, path: str = "/v1/chat/completions", method: str = "POST") -> Reply:
    asked = {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": "authorization,content-type,x-stainless-lang",
    }
    return await stack.call(path=path, method="OPTIONS", headers=asked)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_listed_page_reads_an_answer_whole_with_the_gateways_headers(tmp_path: Path, stream: bool) -> None:
    async with running(tmp_path, settings=allowing(f"https://other.example, {PAGE}")) as stack:
        reply = await stack.call(chat(stream=stream), headers={"origin": PAGE})
        plain = await stack.call(chat(stream=stream))
    assert (reply.status, reply.headers[ALLOWED]) == (200, PAGE)
    assert reply.headers["access-control-expose-headers"] == "*"
    assert "access-control-allow-credentials" not in reply.headers
    assert ALLOWED not in plain.headers
    assert (b"[DONE]" in reply.body) is stream


async def test_a_listed_page_reads_errors_too(tmp_path: Path) -> None:
    async with running(tmp_path, settings=allowing(PAGE)) as stack:
        for how in ({"body": {"model": "auto"}}, {"path": "/v1/nothing", "method": "GET"}, {"body": chat("nobody")}):
            reply = await stack.call(headers={"origin": PAGE}, **how)
            assert reply.status >= 400
            assert reply.headers[ALLOWED] == PAGE
            assert reply.error["message"]


async def test_a_preflight_needs_no_key_and_allows_what_sdks_send(tmp_path: Path) -> None:
    async with running(tmp_path, settings=allowing(PAGE)) as stack:
        reply = await preflight(stack, PAGE)
        models = await preflight(stack, PAGE, path="/v1/models", method="GET")
    assert (reply.status, models.status) == (200, 200)
    assert reply.headers[ALLOWED] == PAGE
    assert "x-stainless-lang" in reply.headers["access-control-allow-headers"]
    assert "POST" in reply.headers["access-control-allow-methods"]


async def test_other_pages_read_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, settings=allowing(PAGE)) as stack:
        refused = await preflight(stack, OTHER)
        reply = await stack.call(chat(), headers={"origin": OTHER})
    assert refused.status == 400
    assert ALLOWED not in refused.headers
    assert ALLOWED not in reply.headers


async def test_every_page_is_refused_unless_origins_are_listed(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        refused = await preflight(stack, PAGE)
        reply = await stack.call(chat(), headers={"origin": PAGE})
    assert refused.status == 405
    assert ALLOWED not in reply.headers


async def test_a_star_allows_all_pages(tmp_path: Path) -> None:
    async with running(tmp_path, settings=allowing("*")) as stack:
        reply = await stack.call(chat(), headers={"origin": OTHER})
    assert reply.headers[ALLOWED] == "*"


async def test_the_admin_listener_has_no_pages_but_its_own(tmp_path: Path) -> None:
    async with running(tmp_path, settings=allowing("*")) as stack:
        reply = await stack.call(path="/readyz", method="GET", admin=True, headers={"origin": PAGE})
    assert ALLOWED not in reply.headers


@pytest.mark.parametrize("stream", [False, True])
async def test_a_page_that_leaves_ends_its_generation(tmp_path: Path, stream: bool) -> None:
    async with running(tmp_path, settings=allowing(PAGE)) as stack:
        stack.small.scripts = [hang]
        _, writer = await stack.connect()
        writer.write(encode(chat(stream=stream), headers={"origin": PAGE}))
        await asyncio.wait_for(stack.small.got_request.wait(), 5)
        writer.close()
        await asyncio.wait_for(stack.small.gone.wait(), 5)


@pytest.mark.parametrize("origins", ["https://a.example", "*", "http://localhost:3000, https://a.example", "", " , "])
def test_origins_are_what_browsers_send(origins: str) -> None:
    assert len(PublicSettings(cors_origins=origins).origins) == len(
        [part for part in origins.split(",") if part.strip()]
    )


@pytest.mark.parametrize(
    "origins", ["https://a.example/", "a.example", "https://a.example/chat", "https://A.example", "https://*.example"]
)
def test_what_no_browser_sends_as_an_origin_is_refused(origins: str) -> None:
    with pytest.raises(ConfigError, match=r"^cors_origins: expected origins such as https://chat\.example\.com"):
        PublicSettings(cors_origins=f"https://good.example,{origins}")
