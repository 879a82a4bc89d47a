"""Options of a request from its headers."""

from __future__ import annotations

import asyncio

import pytest

from engine.frontend.request.asgi import Headers
from engine.frontend.request.errors import ApiError
from engine.frontend.request.headers import RequestOptions, choose_request_id, read_options
from engine.frontend.request.requests import CompletionRequest
from tests.engine.frontend.conftest import Running, StartFront, chat
from tests.engine.frontend.tiny_model import END

NONSENSE = [
    ({"x-penstock-priority": "urgent"}, "x-penstock-priority"),
    ({"x-penstock-deadline-ms": "soon"}, "x-penstock-deadline-ms"),
    ({"x-penstock-deadline-ms": "1e12"}, "x-penstock-deadline-ms"),
    ({"x-penstock-deadline-ms": "nan"}, "x-penstock-deadline-ms"),
    ({"x-penstock-deadline-ms": ""}, "x-penstock-deadline-ms"),
    ({"x-penstock-deadline-ms": "1 000"}, "x-penstock-deadline-ms"),
    ({"x-penstock-deadline-ms": "9" * 400}, "x-penstock-deadline-ms"),
    ({"x-penstock-cache-salt": "x" * 300}, "x-penstock-cache-salt"),
]


async def test_nonsense_in_headers_is_named(running: Running) -> None:
    await running.core()
    for headers, param in NONSENSE:
        response = await running.client.post("/v1/chat/completions", json=chat(), headers=headers)
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_long_interactive_prompts_have_their_own_lane(start_front: StartFront) -> None:
    async with start_front(max_model_len=4096) as running:
        core = await running.core()
        for text, headers, fields, lane in (
            ("hi", {}, {}, "interactive"),
            ("one two three four. " * 400, {}, {}, "long"),
            ("one two three four. " * 400, {"x-penstock-priority": "batch"}, {}, "batch"),
            ("hi", {}, {"service_tier": "flex"}, "batch"),
        ):
            body = chat(text, max_tokens=5, **fields)
            request = asyncio.create_task(running.client.post("/v1/chat/completions", json=body, headers=headers))
            add = await core.next_add()
            assert add.lane == lane
            core.emit(add.seq_id, [END], "stop")
            assert (await request).status_code == 200


def headers(**values: str) -> Headers:
    return Headers({"headers": [(name.replace("_", "-").encode(), text.encode()) for name, text in values.items()]})


def options(service_tier: str | None = None, **values: str) -> RequestOptions:
    request = CompletionRequest(model="m", prompt="x", service_tier=service_tier)
    return read_options(headers(**values), request)


def test_without_headers_a_request_is_interactive_and_waits_for_ever() -> None:
    found = options()
    assert (found.priority, found.deadline_s, found.cache_salt, found.wants_timing) == ("interactive", None, b"", False)


def test_a_header_outweighs_the_bodys_tier() -> None:
    assert options("flex").priority == "batch"
    assert options("flex", x_penstock_priority="interactive").priority == "interactive"


def test_a_deadline_is_in_milliseconds_and_one_that_has_passed_is_shed() -> None:
    assert options(x_penstock_deadline_ms="1500.5").deadline_s == 1.5005
    with pytest.raises(ApiError) as caught:
        options(x_penstock_deadline_ms="0")
    assert (caught.value.status, caught.value.headers["x-should-retry"]) == (503, "false")


@pytest.mark.parametrize(("num_tokens", "lane"), [(1024, "interactive"), (1025, "long")])
def test_only_interactive_prompts_change_their_lane_by_length(num_tokens: int, lane: str) -> None:
    assert options().lane(num_tokens) == lane
    assert options(x_penstock_priority="batch").lane(num_tokens) == "batch"


@pytest.mark.parametrize(
    ("given", "is_echoed"), [("abc-1.2:3_x", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("", False)]
)
def test_a_request_id_is_echoed_only_where_it_is_harmless(given: str, is_echoed: bool) -> None:
    assert choose_request_id(headers(x_request_id=given), "made") == (given if is_echoed else "made")
    assert choose_request_id(headers(), "made") == "made"
