"""Plain requests at a deployment that never answers, that turns not ready, or that is only slow (fault row 44)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.deployments.health.ejection import EjectionRules, StallRules
from tests.faults.stack import FaultStack, failing, faulty, frozen
from tests.faults.test_health_faults import until
from tests.gateway.scripted import COMPLETION, Script, Wire, chunk, complete, hang
from tests.gateway.stack import chat

PRODUCT = EjectionRules()


async def head_only(wire: Wire) -> None:
    """The head of a plain answer, and never its body."""
    await wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n")
    await wire.is_gone.wait()


def slow(seconds: float) -> Script:
    """A plain answer that takes its time."""

    async def script(wire: Wire) -> None:
        await asyncio.sleep(seconds)
        await complete(wire)

    return script


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers get a tenth of the product's patience."""
    monkeypatch.setattr("gateway.deployments.flight.STRANGER_S", 0.5)
    monkeypatch.setattr("gateway.deployments.flight.STRANGER_MOST_S", 1.0)


def by(reply: Any) -> tuple[int, str]:
    return reply.status, reply.headers["x-penstock-deployment"]


@pytest.mark.parametrize("script", [hang, head_only, frozen])
@pytest.mark.parametrize("fields", [{}, {"max_tokens": 8}, {"max_completion_tokens": 16, "stream": False}])
async def test_a_plain_request_leaves_a_stranger_that_never_answers(
    tmp_path: Path, hasty: None, script: Script, fields: dict[str, Any]
) -> None:
    async with faulty(tmp_path) as stack:
        stack.engines[0].otherwise = script
        begun = time.monotonic()

        assert by(await stack.call(chat(**fields))) == (200, "e1")
        assert time.monotonic() - begun < 4
        assert await stack.metric("penstock_ejections_total", deployment="e0", reason="stalled") == 1
        assert by(await stack.call(chat(**fields))) == (200, "e1"), "nothing is sent there during the back-off"
        await stack.check_invariants(2)


async def test_many_plain_requests_leave_together_and_later_ones_are_not_sent_there(tmp_path: Path) -> None:
    async with faulty(tmp_path, ejection=EjectionRules(first_s=30.0, stall=StallRules(least_s=1.0))) as stack:
        replies = await stack.storm(chat(max_tokens=8), 10, num_at_once=2)
        assert {by(reply) for reply in replies} == {(200, "e0")}
        stack.engines[0].otherwise = hang
        begun = time.monotonic()
        replies = await stack.storm(chat(max_tokens=8), 8)

        assert {by(reply) for reply in replies} == {(200, "e1")}
        assert time.monotonic() - begun < 10
        num_sent = len(stack.engines[0].received)
        replies = await stack.storm(chat(max_tokens=8), 30)
        assert {by(reply) for reply in replies} == {(200, "e1")}
        assert len(stack.engines[0].received) == num_sent
        await stack.check_invariants(48)


async def test_those_that_the_retry_budget_cannot_pay_wait_on_instead_of_failing(tmp_path: Path) -> None:
    async with faulty(tmp_path, ejection=EjectionRules(first_s=30.0, stall=StallRules(least_s=1.0))) as stack:
        await stack.storm(chat(max_tokens=8), 5)
        stack.engines[0].otherwise = hang
        waiting = [asyncio.create_task(stack.call(chat(max_tokens=8))) for _ in range(14)]
        await until(lambda: sum(task.done() for task in waiting) == 10)  # the reserve
        others = [await stack.call(chat(max_tokens=8)) for _ in range(50)]  # they earn what the rest needs
        replies = [await task for task in waiting]

        assert {by(reply) for reply in (*replies, *others)} == {(200, "e1")}
        await stack.check_invariants(69)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_deployment_that_turns_not_ready_is_left_by_requests_without_a_byte(
    tmp_path: Path, is_stream: bool
) -> None:
    async with faulty(tmp_path, first_token_ms=15_000) as stack:
        await stack.storm(chat(max_tokens=4000), 5)
        stack.live(0).whole_answers.observe(time.monotonic(), 60.0)  # long answers are usual there
        stack.engines[0].otherwise = hang
        waiting = asyncio.create_task(stack.call(chat(max_tokens=4000, stream=is_stream)))
        await until(lambda: len(stack.engines[0].received) == 6)
        stack.engines[0].is_ready = False
        await asyncio.sleep(0.25)  # the shortest patience here
        assert not waiting.done()
        await stack.gateway._prober.probe_all()

        assert by(await waiting) == (200, "e1")
        await stack.check_invariants(6)


async def test_a_deployment_that_states_it_drains_finishes_what_it_has(tmp_path: Path) -> None:
    async with faulty(tmp_path) as stack:
        stack.engines[0].otherwise = slow(1.0)
        waiting = asyncio.create_task(stack.call(chat(max_tokens=4000)))
        await until(lambda: len(stack.engines[0].received) == 1)
        stack.engines[0].is_ready, stack.engines[0].reported = False, {"state": "draining"}
        await asyncio.sleep(0.3)
        await stack.gateway._prober.probe_all()
        assert not stack.live(0).is_ready

        assert by(await waiting) == (200, "e0")
        await stack.check_invariants(1)


async def test_a_deployment_that_still_gives_tokens_is_not_left_when_it_turns_not_ready(tmp_path: Path) -> None:
    async def dribble(wire: Wire) -> None:
        if not wire.request.json.get("stream"):
            await slow(1.5)(wire)
            return
        await wire.start_stream()
        for _ in range(30):
            await wire.event(chunk("x"))
            await asyncio.sleep(0.05)
        await wire.event(chunk(finish="stop"))
        await wire.event(b"[DONE]")
        await wire.end()

    async with faulty(tmp_path) as stack:
        stack.engines[0].otherwise = dribble
        tasks = [
            asyncio.create_task(stack.call(chat(max_tokens=4000, stream=is_stream))) for is_stream in (True, False)
        ]
        await until(lambda: len(stack.engines[0].received) == 2)
        stack.engines[0].is_ready = False
        for _ in range(3):
            await asyncio.sleep(0.25)
            await stack.gateway._prober.probe_all()

        assert [by(await task) for task in tasks] == [(200, "e0")] * 2
        await stack.check_invariants(2)


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 400}, {"max_completion_tokens": 4000}])
async def test_a_slow_deployment_is_not_abandoned_within_what_its_answer_may_take(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    async with faulty(tmp_path, ejection=PRODUCT) as stack:
        stack.engines[0].otherwise = slow(3.5)

        assert by(await stack.call(chat(**fields))) == (200, "e0")
        assert stack.live(0).health.is_fit
        await stack.check_invariants(1)


async def test_a_deployment_that_was_only_slow_gets_its_answers_out_after_a_false_alarm(
    tmp_path: Path, hasty: None
) -> None:
    """Each stall in a row doubles the patience: it is not shut out for ever."""
    async with faulty(
        tmp_path, ejection=EjectionRules(first_s=0.1, longest_s=0.1, stall=StallRules(least_s=0.2))
    ) as stack:
        stack.engines[0].otherwise = slow(1.2)
        names = []
        for _ in range(6):
            names.append(by(await stack.call(chat(max_tokens=4, tools=TOOLS)))[1])
            await asyncio.sleep(0.15)

        assert names[0] == "e1"
        assert names[-1] == "e0"


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


async def test_a_lone_deployment_is_never_abandoned(tmp_path: Path, hasty: None) -> None:
    async with faulty(tmp_path, num=1) as stack:
        stack.engines[0].otherwise = slow(2.5)

        assert by(await stack.call(chat(max_tokens=4))) == (200, "e0")
        assert await stack.metric("penstock_ejections_total", deployment="e0", reason="stalled") == 1
        assert stack.live(0).health.is_fit, "its answer brought it back"
        assert by(await stack.call(chat(max_tokens=4))) == (200, "e0")
        await stack.check_invariants(2)


async def test_a_suspected_deployment_is_requested_a_stream_behind_a_plain_answer(tmp_path: Path) -> None:
    async with faulty(tmp_path, ejection=EjectionRules(stall=StallRules(least_s=0.2))) as stack:
        for engine in stack.engines:
            engine.scripts = [slow(1.0)]
        first = asyncio.create_task(stack.call(chat(max_tokens=4000)))
        await until(lambda: len(stack.engines[0].received) == 1)
        await asyncio.sleep(0.3)
        reply = await stack.call(chat(max_tokens=4000))
        await first

        assert (by(reply), reply.headers["content-type"]) == ((200, "e0"), "application/json")
        assert reply.json["choices"][0]["message"]["content"] == "hello"
        assert reply.json["usage"]["completion_tokens"] == 3
        assert [received.json.get("stream") for received in stack.engines[0].received] == [None, True]
        assert by(await stack.call(chat(max_tokens=4000))) == (200, "e0")
        assert stack.engines[0].received[-1].json.get("stream") is None, "it has answered: no reason to suspect it"
        await stack.check_invariants(3)


async def send_always(stack: FaultStack, setting: str = "always") -> None:
    for number in range(len(stack.engines)):
        stack.live(number).plain_as_stream = setting


@pytest.mark.parametrize(
    ("fields", "is_stream"),
    [
        ({}, True),
        ({"max_tokens": 8, "temperature": 0}, True),
        ({"stream": False}, True),
        ({"n": 2}, None),
        ({"logprobs": True}, None),
        ({"tools": TOOLS}, None),
        ({"modalities": ["text", "audio"], "audio": {"voice": "a", "format": "mp3"}}, None),
        ({"functions": [{"name": "f", "parameters": {}}]}, None),
    ],
)
async def test_always_requests_streams_where_a_stream_reports_all_of_the_answer(
    tmp_path: Path, fields: dict[str, Any], is_stream: bool | None
) -> None:
    async with faulty(tmp_path, num=1) as stack:
        await send_always(stack)
        reply = await stack.call(chat(**fields))

        assert by(reply) == (200, "e0")
        assert stack.engines[0].received[0].json.get("stream") is is_stream
        notified, plain = reply.json, json.loads(COMPLETION)
        assert notified["object"] == "chat.completion"
        assert notified["choices"][0]["message"]["content"] == plain["choices"][0]["message"]["content"]
        assert notified["usage"] == plain["usage"]
        await stack.check_invariants(1)


async def test_a_stream_behind_a_plain_answer_that_stalls_before_its_first_byte_is_left(
    tmp_path: Path, hasty: None
) -> None:
    async with faulty(tmp_path, first_token_ms=15_000) as stack:
        await send_always(stack)
        stack.engines[0].otherwise = frozen
        begun = time.monotonic()

        assert by(await stack.call(chat(max_tokens=4000))) == (200, "e1")
        assert time.monotonic() - begun < 4
        await stack.check_invariants(1)


@pytest.mark.parametrize("code", [400, 422])
async def test_a_deployment_that_refuses_streams_is_called_plainly_from_then_on(tmp_path: Path, code: int) -> None:
    async def plain_only(wire: Wire) -> None:
        script: Callable[[Wire], Any] = failing(code) if wire.request.json.get("stream") else complete
        await script(wire)

    async with faulty(tmp_path, num=1) as stack:
        await send_always(stack)
        stack.engines[0].otherwise = plain_only
        replies = [await stack.call(chat()) for _ in range(2)]

        assert [by(reply) for reply in replies] == [(200, "e0")] * 2
        assert [received.json.get("stream") for received in stack.engines[0].received] == [True, None, None]


async def test_a_deployment_that_answers_429_to_a_stream_is_not_called_again_at_once(tmp_path: Path) -> None:
    async with faulty(tmp_path, num=1) as stack:
        await send_always(stack)
        stack.engines[0].otherwise = failing(429, retry_after="9")

        assert (await stack.call(chat())).status == 429
        assert len(stack.engines[0].received) == 1
        assert not stack.live(0).refuses_streams


async def test_never_requests_no_streams_behind_plain_answers(tmp_path: Path) -> None:
    async with faulty(tmp_path, ejection=EjectionRules(stall=StallRules(least_s=0.1))) as stack:
        await send_always(stack, "never")
        stack.engines[0].otherwise = slow(0.5)
        await stack.storm(chat(max_tokens=4000), 3)

        assert not any(received.json.get("stream") for engine in stack.engines for received in engine.received)
