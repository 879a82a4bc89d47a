"""The admin page's API over real sockets: totals, one request explained, drains, the live feed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.stack import Stack, chat, encode, running

POLICY = """
schema_version: 1
deployments:
  - id: small
    url: "unix:{folder}/small.sock"
    model: tiny
    cost_per_mtok: {{prompt: 1000, completion: 2000}}
  - id: large
    url: "unix:{folder}/large.sock"
    model: big
    cost_per_mtok: {{prompt: 10000, completion: 20000}}
lanes:
  - {{id: interactive, weight: 8, slo: {{ttft_p95_ms: 20000}}}}
  - {{id: batch, weight: 1}}
routes:
  - id: main
    match: {{models: [auto]}}
    cache: {{mode: exact}}
    select: {{policy: first_available, candidates: [small, large]}}
"""


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        yield stack


async def overview(stack: Stack) -> dict[str, Any]:
    reply = await stack.get("/admin/api/overview?window=60", admin=True)
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json
    return found


async def test_the_overview_counts_what_was_served(stack: Stack) -> None:
    for _ in range(2):
        await stack.call(chat(stream=True))
    await stack.call(chat("nobody"))
    found = await overview(stack)
    assert found["requests"]["outcomes"] == {"completed": 1, "cached": 1, "rejected": 1}
    assert found["cache"]["hit_exact"] == 1
    assert [row["bucket"] for row in found["ttft"]] == ["0-256", "from cache", "all"]
    assert found["slo"] == [
        {
            "lane": "interactive",
            "target": "ttft",
            "limit_ms": 20000.0,
            "met": 2,
            "missed": 0,
            "shed": 0,
            "ratio": 1.0,
            "ratio_of_all": 1.0,
        }
    ]
    assert {row["stage"] for row in found["stages"]} >= {"read", "admit", "cache", "relay"}
    assert found["deployments"][0]["requests"] == 1


async def test_saved_money_is_what_the_dearest_candidate_would_have_taken(stack: Stack) -> None:
    for _ in range(2):
        await stack.call(chat())
    saved = (await overview(stack))["saved"]
    assert saved["tokens"] == {"hit_exact": 10}
    assert saved["spent"] == pytest.approx((7 * 1 + 3 * 2) / 1000)
    assert saved["cost"]["hit_exact"] == pytest.approx((7 * 10 + 3 * 20) / 1000)
    assert saved["cost"]["routing"] == pytest.approx((7 * 9 + 3 * 18) / 1000)


async def test_a_gateway_that_served_nothing_reports_it_in_numbers(stack: Stack) -> None:
    found = await overview(stack)
    assert found["requests"]["count"] == 0
    assert found["ttft"] == []
    assert found["stages"] == []
    assert found["slo"][0]["ratio"] is None
    assert found["cache"]["hit_ratio"] is None


@pytest.mark.parametrize(
    "path", ["/admin/api/overview?window=7", "/admin/api/requests?limit=x", "/admin/api/live?topic=everything"]
)
async def test_a_parameter_that_makes_no_sense_is_named(stack: Stack, path: str) -> None:
    reply = await stack.get(path, admin=True)
    assert reply.status == 400
    assert reply.error["param"] in path


async def test_a_drain_that_another_process_ordered_is_followed(stack: Stack) -> None:
    await stack.gateway._stores.limits.put("drains", "small", b"{}")
    await _until(lambda: stack.gateway.room._deployments()["small"].is_draining)
    await stack.gateway._stores.limits.delete("drains", "small")
    await _until(lambda: stack.gateway.room._deployments()["small"].is_ready)


async def test_the_live_feed_reports_of_a_request_within_two_seconds(stack: Stack) -> None:
    reader, writer = await _subscribe(stack, "topic=requests")
    try:
        assert (await _event(reader))["requests"] == []
        reply = await stack.call(chat())
        notified = await _event(reader)
        while not notified["requests"]:
            notified = await _event(reader)
        assert notified["requests"][0]["id"] == reply.headers["x-request-id"]
    finally:
        writer.close()


async def test_the_feed_of_the_overview_brings_charts_first_and_counts_always(stack: Stack) -> None:
    await stack.call(chat())
    reader, writer = await _subscribe(stack, "topic=overview&window=60")
    try:
        first, *more = [await _event(reader) for _ in range(3)]
        assert first["series"][-1]["completed"] > 0
        assert not all("series" in event for event in more)  # only when a step of theirs is over
        assert {event["requests"]["count"] for event in more} == {1}
    finally:
        writer.close()


async def test_a_document_is_made_once_a_second_however_many_pages_want_it(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = stack.gateway.room.feed
    made = list[tuple[int, bool]]()

    def counted(topic: str, window_s: int, *, is_whole: bool) -> bytes:
        made.append((feed.period("load"), is_whole))
        return b"data: {}\n\n"

    monkeypatch.setattr(feed, "document", counted)
    pages = [await _subscribe(stack, "topic=load") for _ in range(10)]
    try:
        for reader, _ in pages:
            for _ in range(3):
                await _event(reader)
    finally:
        for _, writer in pages:
            writer.close()
    assert len(made) == len(set(made))  # once in a period, and once more for those that come new in it


async def test_nothing_is_left_of_a_page_that_closed(stack: Stack) -> None:
    feed = stack.gateway.room.feed
    _, writer = await _subscribe(stack, "topic=load")
    await _until(lambda: feed.num_subscribers == 1)
    writer.close()
    await _until(lambda: feed.num_subscribers == 0)
    assert feed._made == {}


async def test_an_open_page_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        reader, writer = await _subscribe(stack, "topic=load")
        await _event(reader)
        await asyncio.wait_for(stack.gateway.stop(drain_timeout_s=60.0), 30)
        assert (await reader.read()).endswith(b"0\r\n\r\n")
        writer.close()


async def _subscribe(stack: Stack, query: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    admin = stack.gateway.config.admin.listen.removeprefix("unix:")
    reader, writer = await asyncio.open_unix_connection(admin)
    writer.write(encode(path=f"/admin/api/live?{query}", method="GET"))
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def _event(reader: asyncio.StreamReader) -> dict[str, Any]:
    while True:
        line = await asyncio.wait_for(reader.readline(), 30)
        if line.startswith(b"data: "):
            found: dict[str, Any] = json.loads(line[6:])
            return found


async def _until(is_so: Any) -> None:
    for _ in range(600):
        if is_so():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come to that within 30 s")
