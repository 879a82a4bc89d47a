"""The time to first token of a plain answer is the engine's own report, or the stream behind it; never the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.scripted import COMPLETION, Wire, chunk
from tests.gateway.stack import Stack, chat, policy_text, running

SLOW_S = 0.2


def plain(reported: str | None) -> Any:
    """A deployment that takes a while, and reports its first token in a header if it has any."""

    async def answer(wire: Wire) -> None:
        await asyncio.sleep(SLOW_S)
        await wire.answer(COMPLETION, headers={} if reported is None else {"x-penstock-ttft-ms": reported})

    return answer


async def metrics_of(stack: Stack) -> list[str]:
    text = (await stack.get("/metrics", admin=True)).body.decode()
    return [line for line in text.splitlines() if line.startswith("penstock_ttft_seconds_count")]


async def test_the_engines_own_report_counts_and_is_not_passed_on(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.otherwise = plain("12.5")
        reply = await stack.call(chat())
        (line,) = stack.lines()
        assert reply.status == 200
        assert "x-penstock-ttft-ms" not in reply.headers
        assert 12.5 <= line["ttft_ms"] < SLOW_S * 1000 <= line["total_ms"]
        assert [each.rpartition(" ")[2] for each in await metrics_of(stack)] == ["1.0"]


@pytest.mark.parametrize("reported", [None, "soon", "-1", "1e9", "12,5"])
async def test_without_a_report_a_plain_answer_has_none(tmp_path: Path, reported: str | None) -> None:
    async with running(tmp_path) as stack:
        stack.small.otherwise = plain(reported)
        assert (await stack.call(chat())).status == 200
        (line,) = stack.lines()
        assert line.get("ttft_ms") is None
        assert line["total_ms"] >= SLOW_S * 1000
        assert all(each.endswith(" 0.0") for each in await metrics_of(stack))


async def test_a_report_beyond_the_answers_end_counts_as_its_end(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.otherwise = plain("999999")
        await stack.call(chat())
        (line,) = stack.lines()
        assert line["ttft_ms"] <= line["total_ms"]


async def test_the_stream_behind_a_plain_answer_shows_it(tmp_path: Path) -> None:
    async def stream(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("hel"))
        await asyncio.sleep(SLOW_S)
        for event in (chunk("lo"), chunk(finish="stop"), chunk(usage=(7, 3)), b"[DONE]"):
            await wire.event(event)
        await wire.end()

    policy = policy_text(tmp_path).replace("model: tiny,", "model: tiny, plain_as_stream: always,")
    async with running(tmp_path, policy=policy) as stack:
        stack.small.otherwise = stream
        reply = await stack.call(chat())
        (line,) = stack.lines()
        assert reply.json["choices"][0]["message"]["content"] == "hello"
        assert line["ttft_ms"] < SLOW_S * 1000 <= line["total_ms"]


async def test_the_deployments_forecast_learns_from_the_report(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        stack.small.otherwise = plain("10")
        for _ in range(8):
            await stack.call(chat())
        (live,) = (each for each in stack._live() if each.id == "small")
        learned_s = live.forecast.ttft_s(live.client._clock(), 10, "interactive")
        assert learned_s < SLOW_S / 2
