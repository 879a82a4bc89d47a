"""Traces: from the client's traceparent through the gateway's stages to what the upstream is given."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from gateway.config.checks import ConfigError
from gateway.config.sources import config_of
from tests.gateway.scripted import Wire
from tests.gateway.stack import chat, running
from tests.support.otlp_collector import OtlpCollector

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def settings(url: str, sample_ratio: float = 1.0) -> dict[str, Any]:
    return {"telemetry.trace.otlp_endpoint": url, "telemetry.trace.sample_ratio": sample_ratio}


def by_name(spans: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {span["name"]: span for span in spans}


async def test_a_trace_goes_from_the_client_through_the_stages_to_the_upstream(tmp_path: Path) -> None:
    with OtlpCollector() as collector:
        async with running(tmp_path, settings=settings(collector.url)) as stack:
            reply = await stack.call(chat(stream=True), headers={"traceparent": PARENT, "tracestate": "a=b"})
            assert reply.status == 200
            spans = by_name(await asyncio.to_thread(collector.wait_for, 4))
            notified = stack.small.received[0].headers
        assert collector.services == {"penstock-gateway"}
        own, upstream = spans["POST /v1/chat/completions"], spans["chat auto"]
        assert {span["trace"] for span in spans.values()} == {TRACE}
        assert own["parent"] == SPAN
        assert {spans[name]["parent"] for name in ("prepare", "queue", "chat auto")} == {own["id"]}
        assert notified["traceparent"] == f"00-{TRACE}-{upstream['id']}-01"
        assert notified["tracestate"] == "a=b"
        assert (own["kind"], upstream["kind"]) == (2, 3)
        assert own["start"] <= spans["prepare"]["start"] <= spans["queue"]["start"] <= upstream["start"]
        assert upstream["end"] <= own["end"] + 1000
        assert own["attributes"]["http.response.status_code"] == 200
        assert own["attributes"]["penstock.request_id"] == reply.headers["x-request-id"]
        assert own["attributes"]["penstock.outcome"] == "completed"
        assert upstream["attributes"]["gen_ai.request.model"] == "auto"
        assert upstream["attributes"]["gen_ai.usage.output_tokens"] == 3
        assert upstream["events"] == ["gen_ai.first_token"]
        assert "penstock.read_s" in spans["prepare"]["attributes"]


async def test_without_a_collector_the_clients_header_goes_on_as_it_came(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.call(chat(), headers={"traceparent": PARENT})
        await stack.call(chat())
        assert stack.small.received[0].headers["traceparent"] == PARENT
        assert "traceparent" not in stack.small.received[1].headers
        assert "penstock_traces_total{" not in (await stack.get("/metrics", admin=True)).body.decode()


async def test_the_caller_decides_what_is_sampled_and_the_ratio_decides_for_the_rest(tmp_path: Path) -> None:
    with OtlpCollector() as collector:
        async with running(tmp_path, settings=settings(collector.url, 0.0)) as stack:
            await stack.call(chat())
            await stack.call(chat(), headers={"traceparent": PARENT.removesuffix("01") + "00"})
            await stack.call(chat(), headers={"traceparent": "nonsense"})
            await stack.call(chat(), headers={"traceparent": PARENT})
            await asyncio.to_thread(collector.wait_for, 4)
        assert {span["trace"] for span in collector.spans} == {TRACE}
        assert stack.small.received[1].headers["traceparent"].endswith("-00")


async def test_a_refused_request_is_an_error_with_its_code(tmp_path: Path) -> None:
    with OtlpCollector() as collector:
        async with running(tmp_path, settings=settings(collector.url)) as stack:
            await stack.call(chat("nobody"))
            spans = by_name(await asyncio.to_thread(collector.wait_for, 2))
        own = spans["POST /v1/chat/completions"]
        assert own["status"] == 2
        assert own["attributes"]["http.response.status_code"] == 404
        assert "chat nobody" not in spans


async def test_names_from_outside_are_escaped_and_prompts_are_nowhere(tmp_path: Path) -> None:
    with OtlpCollector() as collector:
        async with running(tmp_path, settings=settings(collector.url)) as stack:
            body = chat('"}],\x1b[2J sk-verysecret123')
            body["messages"][0]["content"] = "canary-in-the-prompt"
            await stack.call(body)
            await stack.call({**chat(stream=True), "messages": body["messages"]})
            spans = await asyncio.to_thread(collector.wait_for, 6)
        text = str(spans)
        assert "canary-in-the-prompt" not in text
        assert "verysecret" not in text
        assert "\x1b" not in text


@pytest.mark.parametrize("status", [503, 400])
async def test_a_collector_that_refuses_costs_spans_and_nothing_else(tmp_path: Path, status: int) -> None:
    with OtlpCollector(status) as collector:
        async with running(tmp_path, settings=settings(collector.url)) as stack:
            assert (await stack.call(chat())).status == 200
            await asyncio.to_thread(collector.wait_for, 3)
            for _ in range(600):
                text = (await stack.get("/metrics", admin=True)).body.decode()
                if 'penstock_traces_total{end="failed"} 1.0' in text:
                    return
                await asyncio.sleep(0.05)
            raise AssertionError(text)


async def test_a_collector_that_is_not_there_holds_up_neither_requests_nor_the_end(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1/traces"
        async with running(tmp_path, settings=settings(url)) as stack:
            assert (await stack.call(chat())).status == 200


async def test_an_upstream_that_fails_is_an_error_in_both_spans(tmp_path: Path) -> None:
    async def fail(wire: Wire) -> None:
        wire.abort()

    with OtlpCollector() as collector:
        async with running(tmp_path, settings=settings(collector.url)) as stack:
            stack.small.otherwise = stack.large.otherwise = fail
            assert (await stack.call(chat())).status == 502
            spans = by_name(await asyncio.to_thread(collector.wait_for, 3))
        assert (spans["POST /v1/chat/completions"]["status"], spans["chat auto"]["status"]) == (2, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"telemetry.trace.otlp_endpoint": "collector:4318"},
        {"telemetry.trace.sample_ratio": 1.5},
        {"telemetry.log.sample_ratio": -0.1},
        {"telemetry.log.omit": "usage"},
    ],
)
def test_settings_that_make_no_sense_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        config_of({**wrong})
