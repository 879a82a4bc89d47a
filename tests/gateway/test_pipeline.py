"""The spine over real sockets: what goes up, what comes back, what is recorded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gateway.access.api_keys import Caller
from gateway.timeline import upstream_request_id
from tests.gateway.scripted import COMPLETION, Wire, chunk, hang
from tests.gateway.stack import chat, encode, policy_text, running


async def test_a_plain_answer_comes_back_byte_for_byte(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(chat())

        assert reply.status == 200
        assert reply.body == COMPLETION


async def test_a_stream_comes_back_byte_for_byte(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(chat(stream=True))

        events = [chunk(""), chunk("hel"), chunk("lo"), chunk(finish="stop"), chunk(usage=(7, 3)), b"[DONE]"]
        assert reply.body == b"".join(b"data: " + event + b"\n\n" for event in events)


async def test_the_body_goes_up_unchanged_but_for_the_model(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        raw = b'{ "messages" : [{"role":"user","content":"h\\u00e9"}],\n "model" :"auto", "temperature":0.10,"x":1e2}'
        await stack.call(raw)
        await stack.call(raw.replace(b'"auto"', b'"tiny"'))

        assert stack.small.received[0].body == raw.replace(b'"auto"', b'"tiny"')
        assert stack.small.received[1].body == raw.replace(b'"auto"', b'"tiny"')


async def test_an_event_stream_states_that_it_must_not_be_buffered(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(chat(stream=True))

        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert reply.headers["cache-control"] == "no-cache"
        assert reply.headers["x-accel-buffering"] == "no"


async def test_only_listed_headers_go_up(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        sent = {
            "authorization": "Bearer sk-client",
            "cookie": "a=b",
            "x-forwarded-for": "10.0.0.1",
            "x-request-id": "mine",
            "x-client-request-id": "label",
            "x-penstock-cache-salt": "another tenant's",
            "te": "trailers",
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "tracestate": "a=1",
        }
        reply = await stack.call(chat(), headers=sent)

        up = stack.small.received[0].headers
        assert up["traceparent"] == sent["traceparent"]
        assert up["tracestate"] == "a=1"
        assert up["x-request-id"] == upstream_request_id(reply.headers["x-request-id"]).decode()
        assert up["x-penstock-priority"] == "interactive"
        assert up["x-penstock-cache-salt"] == Caller(tenant="dev").cache_salt.decode()
        assert int(up["x-penstock-deadline-ms"]) == 20_000
        assert not {"authorization", "cookie", "x-forwarded-for", "te", "x-client-request-id"} & up.keys()
        assert stack.lines()[0]["client_request_id"] == "label"


async def test_upstream_headers_stay_inside(tmp_path: Path) -> None:
    async def chatty(wire: Wire) -> None:
        extra = {"x-penstock-error-code": "nonsense", "set-cookie": "a=b", "x-forwarded-for": "1.2.3.4", "server": "up"}
        await wire.answer(COMPLETION, headers=extra)

    async with running(tmp_path) as stack:
        stack.small.scripts = [chatty]
        reply = await stack.call(chat())

        assert not {"x-penstock-error-code", "set-cookie", "x-forwarded-for", "server"} & reply.headers.keys()


async def test_a_request_is_recorded_once_with_usage_and_stages(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.call(chat())
        await stack.call(chat(stream=True))

        plain, stream = stack.lines()
        for line in (plain, stream):
            assert (line["outcome"], line["status"], line["attempts"]) == ("completed", 200, 1)
            assert (line["prompt_tokens"], line["completion_tokens"]) == (7, 3)
            assert (line["tenant"], line["lane"], line["model"], line["route"]) == (
                "dev",
                "interactive",
                "auto",
                "main",
            )
            assert set(line["stages_ms"]) >= {"read", "admit", "trim", "cache", "route", "queue", "relay"}
        assert 0 < stream["ttft_ms"] <= stream["total_ms"]
        assert plain.get("ttft_ms") is None  # this server does not report it
        assert stream["stream"] is True


async def test_metrics_report_what_happened(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.call(chat(stream=True))
        await stack.call({"model": "auto"})
        text = (await stack.get("/metrics", admin=True)).body.decode()

        for line in (
            'penstock_requests_total{deployment="small",outcome="completed",route="main"} 1.0',
            'penstock_requests_total{deployment="",outcome="rejected",route=""} 1.0',
            'penstock_stage_seconds_count{stage="upstream_first_byte"} 1.0',
            'penstock_ttft_seconds_count{cache="bypass",deployment="small",prompt_bucket="0-256"} 1.0',
            'penstock_tpot_seconds_count{cache="bypass",deployment="small",prompt_bucket="0-256"} 1.0',
            "penstock_overhead_seconds_count 1.0",
            'penstock_prompt_tokens_total{tenant="dev"} 7.0',
            'penstock_concurrency_limit{deployment="small"} 8.0',
            'penstock_in_flight{deployment="small"} 0.0',
            'penstock_queue_depth{lane="interactive"} 0.0',
            'penstock_routing_decisions_total{choice="small",policy="first_available",reason="first"} 1.0',
            "penstock_policy_reload_success 1.0",
        ):
            assert line in text.splitlines(), line


async def test_timing_is_added_to_a_plain_answer_on_request(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(chat(), headers={"x-penstock-timing": "full"})

        timing = reply.json["penstock"]["timing"]["gateway"]
        assert set(timing) >= {"read", "admit", "route", "queue", "upstream_first_byte", "relay"}
        assert {key: value for key, value in reply.json.items() if key != "penstock"} == json.loads(COMPLETION)
        assert stack.small.received[0].headers["x-penstock-timing"] == "full"


async def test_timing_is_added_to_the_last_event_of_a_stream_beside_the_engines(tmp_path: Path) -> None:
    async def engine(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("a"))
        last = {**json.loads(chunk(finish="stop")), "penstock": {"timing": {"prefill_ms": 1.5}}}
        await wire.event(json.dumps(last).encode())
        await wire.event(b"[DONE]")
        await wire.end()

    async with running(tmp_path) as stack:
        stack.small.scripts = [engine]
        reply = await stack.call(chat(stream=True), headers={"x-penstock-timing": "full"})

        events = reply.body.split(b"\n\n")
        assert events[0] == b"data: " + chunk("a")
        timing = json.loads(events[1].removeprefix(b"data: "))["penstock"]["timing"]
        assert timing["prefill_ms"] == 1.5
        assert "upstream_first_byte" in timing["gateway"]
        assert events[2:] == [b"data: [DONE]", b""]


async def test_keep_alive_serves_one_request_after_the_other(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reader, writer = await stack.connect()
        for _ in range(3):
            writer.write(encode(chat(), headers={"connection": "keep-alive"}))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 2)
            assert head.startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(len(COMPLETION)) == COMPLETION
        writer.close()
        assert stack.gateway._current().deployments["small"].client.snapshot().num_connected_total <= 2


async def test_a_full_queue_sheds_with_a_time_to_come_back(tmp_path: Path) -> None:
    async with running(tmp_path, permits=1, max_queue=0) as stack:
        stack.small.scripts = [hang]
        _, first = await stack.connect()
        first.write(encode(chat("solo")))
        await asyncio.wait_for(stack.small.got_request.wait(), 2)

        reply = await stack.call(chat("solo"))

        assert reply.status == 503
        assert reply.headers["x-penstock-shed-reason"] == "queue_full"
        assert reply.headers["x-should-retry"] == "true"
        assert 1 <= int(reply.headers["retry-after"]) <= 60
        assert int(reply.headers["retry-after-ms"]) >= 1000
        assert reply.error["degraded"]["lane"] == "interactive"
        assert stack.lines()[0]["shed_reason"] == "queue_full"
        first.close()


async def test_a_request_moves_on_when_the_first_candidate_is_full(tmp_path: Path) -> None:
    async with running(tmp_path, permits=1) as stack:
        stack.small.scripts = [hang]
        _, first = await stack.connect()
        first.write(encode(chat()))
        await asyncio.wait_for(stack.small.got_request.wait(), 2)

        reply = await stack.call(chat())

        assert reply.headers["x-penstock-deployment"] == "large"
        first.close()


async def test_work_is_not_started_after_the_clients_own_timeout(tmp_path: Path) -> None:
    async with running(tmp_path, permits=1) as stack:
        stack.small.scripts = [hang]
        _, first = await stack.connect()
        first.write(encode(chat("solo")))
        await asyncio.wait_for(stack.small.got_request.wait(), 2)

        reply = await stack.call(chat("solo"), headers={"x-stainless-read-timeout": "0.05"})

        assert reply.status == 503
        assert reply.headers["x-penstock-shed-reason"] == "deadline"
        assert reply.headers["x-should-retry"] == "false"
        assert len(stack.small.received) == 1
        first.close()


async def test_the_clients_timeout_goes_up_with_a_plain_request(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.call(chat(), headers={"x-stainless-timeout": "3"})
        await stack.call(chat(stream=True), headers={"x-stainless-read-timeout": "3"})

        plain, stream = (int(received.headers["x-penstock-deadline-ms"]) for received in stack.small.received)
        assert 2_500 < plain <= 3_000
        assert stream == 20_000


@pytest.mark.parametrize("value", ["-1", "0", "nan", "inf", "soon", "1e999", "", "0.0000000000000000001"])
async def test_a_client_timeout_that_makes_no_sense_is_ignored(tmp_path: Path, value: str) -> None:
    async with running(tmp_path) as stack:
        assert (await stack.call(chat(), headers={"x-stainless-timeout": value})).status == 200


async def test_retries_of_clients_are_counted(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.call(chat(), headers={"x-stainless-retry-count": "2"})
        await stack.call(chat(), headers={"x-stainless-retry-count": "0"})

        assert [line.get("is_retry") for line in stack.lines()] == [True, None]


async def test_the_lane_is_the_requested_one_when_it_exists(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.call(chat(), headers={"x-penstock-priority": "batch"})
        await stack.call(chat(), headers={"x-penstock-priority": "root"})

        assert [line["lane"] for line in stack.lines()] == ["batch", "interactive"]


async def test_what_a_deployment_is_believed_to_hold_is_learned_from_what_it_states_it_held(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 400, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}}

    async def forgetful(wire: Wire) -> None:
        await wire.answer(json.dumps({**json.loads(COMPLETION), "usage": usage}).encode())

    policy = policy_text(tmp_path).replace("weight: 8,", "weight: 8, slo: {ttft_p95_ms: 60000},")
    async with running(tmp_path, policy=policy) as stack:
        stack.small.otherwise = forgetful
        forecast = stack.gateway._current().deployments["small"].forecast
        trust = forecast.cache_trust
        messages = [{"role": "user", "content": "a long story " * 120}]
        for _ in range(6):
            assert (await stack.call(chat(messages=messages))).status == 200
            messages += [{"role": "assistant", "content": "hello"}, {"role": "user", "content": "and then?"}]
        assert forecast.cache_trust < trust, "it held nothing of what it was sent a moment ago"
