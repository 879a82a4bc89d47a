"""A small model answers, and a large one where the first tokens are not sure: over real sockets, for both forms."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.admission.quotas.quotas import Quotas
from gateway.admission.quotas.reservation import Reservation
from gateway.deployments.health.ejection import EjectionRules, StallRules
from gateway.deployments.health.second_attempts import MIN_SAMPLES
from gateway.store.base import Store
from gateway.telemetry.records.record import HandedOver, RequestRecord, Usage
from gateway.timeline import Outcome
from routing_policies.loading import load_policy
from tests.gateway.scripted import Script, Wire, hang
from tests.gateway.stack import Stack, chat, encode, running

POLICY = """
schema_version: 1
deployments:
  - {{id: small, url: "unix:{folder}/small.sock", model: tiny, cost_per_mtok: {{prompt: 1, completion: 1}}}}
  - {{id: large, url: "unix:{folder}/large.sock", model: big, cost_per_mtok: {{prompt: 9, completion: 9}}}}
tenants:
  - {{id: dev, limits: {{tokens_per_min: 100000}}}}
routes:
  - id: stairs
    match: {{models: [auto]}}
    select: {{policy: cascade, min_quality: 0.8, cascade: {{first_tokens: 3}}, candidates: [small, large]}}
"""
SURE, UNSURE = (-0.01, -0.02, -0.01, -0.3), (-1.2, -1.2, -1.0, -0.01)


def notified(text: str, logprob: float) -> dict[str, Any]:
    other = {"token": "?", "logprob": logprob - 2, "bytes": None}
    token = {"token": text, "logprob": logprob, "bytes": None}
    return {**token, "top_logprobs": [token, other]}


def event(choice: dict[str, Any] | None, usage: tuple[int, int] | None = None) -> bytes:
    found: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    found["choices"] = [] if choice is None else [{"index": 0, "logprobs": None, "finish_reason": None, **choice}]
    if usage is not None:
        found["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return json.dumps(found, separators=(",", ":")).encode()


def engine(words: str, logprobs: tuple[float, ...]) -> Script:
    """Answers as an engine would, and shows how likely its tokens were when it is called to."""

    async def answer(wire: Wire) -> None:
        wants = wire.request.json.get("logprobs") is True
        content = [notified(word, logprob) for word, logprob in zip(words.split(), logprobs, strict=True)]
        if not wire.request.json.get("stream"):
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": words},
                "logprobs": {"content": content} if wants else None,
                "finish_reason": "stop",
            }
            usage = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
            await wire.answer(json.dumps({"id": "c", "choices": [choice], "usage": usage}).encode())
            return
        await wire.start_stream()
        await wire.event(event({"delta": {"role": "assistant", "content": ""}}))
        for token in content:
            logs = {"content": [token]} if wants else None
            await wire.event(event({"delta": {"content": token["token"]}, "logprobs": logs}))
            await asyncio.sleep(0)
        await wire.event(event({"delta": {}, "finish_reason": "stop"}))
        await wire.event(event(None, (7, 4)))
        await wire.event(b"[DONE]")
        await wire.end()

    return answer


def text_of(body: bytes) -> str:
    if not body.startswith(b"data:"):
        return str(json.loads(body)["choices"][0]["message"]["content"]).replace(" ", "")
    events = [json.loads(line[5:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
    return "".join(found["choices"][0]["delta"].get("content", "") for found in events if found["choices"])


async def call(stack: Stack, sureness: tuple[float, ...], **fields: Any) -> tuple[str, str, bytes]:
    stack.small.otherwise = engine("a small answer came", sureness)
    stack.large.otherwise = engine("a large answer came", SURE)
    reply = await stack.call(chat(**fields))
    assert reply.status == 200
    return reply.headers["x-penstock-deployment"], text_of(reply.body), reply.body


async def decisions(stack: Stack) -> set[str]:
    text = (await stack.get("/metrics", admin=True)).body.decode()
    return {
        line.partition("{")[2] for line in text.splitlines() if line.startswith("penstock_routing_decisions_total{")
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_a_sure_answer_goes_on_and_does_not_report_what_nobody_sent(tmp_path: Path, stream: bool) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        deployment, text, body = await call(stack, SURE, stream=stream)

        assert (deployment, text) == ("small", "asmallanswercame")
        assert stack.large.received == []
        assert b'"logprobs":{' not in body.replace(b" ", b"")
        assert stack.small.received[0].json["top_logprobs"] == 2
        assert 'choice="small",policy="cascade",reason="confident"} 1.0' in await decisions(stack)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_unsure_answer_is_left_for_the_large_models(tmp_path: Path, stream: bool) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        deployment, text, _ = await call(stack, UNSURE, stream=stream)

        assert (deployment, text) == ("large", "alargeanswercame")
        assert "logprobs" not in stack.large.received[0].json
        assert 'choice="large",policy="cascade",reason="handed_over"} 1.0' in await decisions(stack)
        (line,) = stack.lines()
        assert (line["attempts"], line["handed_over_from"]) == (2, "small")
        assert line["handed_over_tokens"] >= 2


@pytest.mark.parametrize("is_apart", [False, True])
@pytest.mark.parametrize(("logprobs", "answering"), [(SURE, "small"), (UNSURE, "large")])
async def test_the_answer_is_evaluated_and_not_the_reasoning(
    tmp_path: Path, is_apart: bool, logprobs: tuple[float, ...], answering: str
) -> None:
    thoughts, words = [notified("hm", -4.0) for _ in range(5)], "a small answer came"

    async def reasons(wire: Wire) -> None:
        await wire.start_stream()
        for token in thoughts:
            logs = {"content": [], "reasoning_content": [token]} if is_apart else {"content": [token]}
            await wire.event(event({"delta": {"reasoning_content": token["token"]}, "logprobs": logs}))
        for word, logprob in zip(words.split(), logprobs, strict=True):
            logs = {"content": [notified(word, logprob)]}
            await wire.event(event({"delta": {"content": word}, "logprobs": logs}))
            await asyncio.sleep(0)
        await wire.event(event({"delta": {}, "finish_reason": "stop"}))
        await wire.event(event(None, (7, 9)))
        await wire.event(b"[DONE]")
        await wire.end()

    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.otherwise = reasons
        stack.large.otherwise = engine("a large answer came", SURE)
        reply = await stack.call(chat())
        message = json.loads(reply.body)["choices"][0]["message"]
        assert message["content"].replace(" ", "") == f"a{answering}answercame"
        assert message.get("reasoning_content") == ("hm" * 5 if answering == "small" else None)
        await stack.until_idle()
        if answering == "large":
            (line,) = stack.lines()
            assert line["handed_over_tokens"] >= 5 + 2, "reasoning costs, too"


async def test_both_models_tokens_are_counted(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        await call(stack, UNSURE)
        await stack.until_idle()

        text = (await stack.get("/metrics", admin=True)).body.decode().splitlines()
        totals = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text if line[0] != "#"}
        (line,) = stack.lines()
        both = totals['penstock_prompt_tokens_total{tenant="dev"}']
        both += totals['penstock_completion_tokens_total{tenant="dev"}']
        assert both == 11 + line["handed_over_tokens"]
        cost = {name: totals[f'penstock_cost_total{{deployment="{name}"}}'] for name in ("small", "large")}
        assert cost["small"] == pytest.approx(line["handed_over_tokens"] / 1e6)
        assert cost["large"] == pytest.approx(9 * 11 / 1e6)


@pytest.mark.parametrize(
    ("name", "left", "tokens", "nano"),
    [
        ("neutral: one model", None, 11, 99_000),
        ("two", HandedOver("small", Usage(7, 2)), 20, 108_000),
    ],
)
def test_a_quota_pays_for_both_models_at_their_own_prices(
    name: str, left: HandedOver | None, tokens: int, nano: int
) -> None:
    quotas = Quotas(cast(Store, None), holder="h", clock=lambda: 0.0, wall=lambda: 0.0, report=lambda error: None)
    quotas.configure(load_policy(POLICY.format(folder="/run"), source="policy.yaml"))
    record = RequestRecord("req_1", 0.0)
    record.outcome, record.deployment, record.attempts = Outcome.COMPLETED, "large", 2
    record.usage, record.handed_over = Usage(7, 4), left
    paid: list[tuple[int, int]] = []
    reservation = SimpleNamespace(tokens=500, nano=5, settle=lambda *used: paid.append(used))
    quotas.settle(cast(Reservation, reservation), record, None)
    assert paid == [(tokens, nano)], name


async def test_who_requests_logprobs_gets_them(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        _, _, body = await call(stack, SURE, stream=True, logprobs=True)

        assert body.count(b'"logprobs":{') == 4
        assert "top_logprobs" not in stack.small.received[0].json


async def test_a_plain_answer_is_left_before_it_has_ended(tmp_path: Path) -> None:
    async def goes_on(wire: Wire) -> None:
        assert wire.request.json["stream_options"] == {"include_usage": True}
        await wire.start_stream()
        for logprob in UNSURE[:3]:
            await wire.event(event({"delta": {"content": "a"}, "logprobs": {"content": [notified("a", logprob)]}}))
        await wire.is_gone.wait()

    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.otherwise, stack.large.otherwise = goes_on, engine("a large answer came", SURE)
        reply = await stack.call(chat())
        assert (reply.headers["x-penstock-deployment"], text_of(reply.body)) == ("large", "alargeanswercame")
        await asyncio.wait_for(stack.small.gone.wait(), 30)
        assert "stream" not in stack.large.received[0].json


async def test_a_plain_answer_that_goes_on_is_what_the_model_would_have_answered_plainly(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        for sends in (False, True):
            _, _, body = await call(stack, SURE, logprobs=sends, **({"top_logprobs": 2} if sends else {}))
            answer = json.loads(body)
            (choice,) = answer["choices"]
            assert (answer["object"], choice["finish_reason"]) == ("chat.completion", "stop")
            assert choice["message"] == {"role": "assistant", "content": "asmallanswercame"}
            assert answer["usage"] == {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
            logprobs = choice["logprobs"]
            assert logprobs is None if not sends else len(logprobs["content"]) == 4


async def test_a_plain_answer_that_breaks_off_is_called_of_the_other_model(tmp_path: Path) -> None:
    async def breaks(wire: Wire) -> None:
        await wire.start_stream()
        for logprob in SURE[:3]:
            await wire.event(event({"delta": {"content": "a"}, "logprobs": {"content": [notified("a", logprob)]}}))
        await wire.end()

    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.otherwise, stack.large.otherwise = breaks, engine("a large answer came", SURE)
        reply = await stack.call(chat())
        assert (reply.headers["x-penstock-deployment"], text_of(reply.body)) == ("large", "alargeanswercame")


def ending(*last: bytes, text: str = "a") -> Script:
    """States four words, and then this."""

    async def answer(wire: Wire) -> None:
        if not wire.request.json.get("stream"):
            await engine("a plain answer came", SURE)(wire)
            return
        await wire.start_stream()
        for logprob in (-0.15,) * 4:  # neither sure before it is whole nor hopeless
            await wire.event(event({"delta": {"content": text}, "logprobs": {"content": [notified(text, logprob)]}}))
        for data in last:
            await wire.event(data)
        await wire.end()

    return answer


STOP = event({"delta": {}, "finish_reason": "stop"})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "last", [(STOP,), (STOP, b"[DONE]"), (event({"delta": {}, "finish_reason": "content_filter"}),)]
)
async def test_a_small_model_that_finishes_in_its_own_way_is_not_broken(
    tmp_path: Path, last: tuple[bytes, ...], stream: bool
) -> None:
    strict = EjectionRules(consecutive_failures=1)
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path), ejection=strict) as stack:
        stack.small.otherwise, stack.large.otherwise = ending(*last), engine("a large answer came", SURE)
        for _ in range(3):
            reply = await stack.call(chat(stream=stream))
            assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "small")
            assert text_of(reply.body) == "aaaa"
        assert stack.large.received == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "last",
    [
        (),
        (b'{ "error": {"message": "x"}}', b"[DONE]"),
        (event({"delta": {}, "finish_reason": "error"}), b"[DONE]"),
        (event({"index": 1, "delta": {"content": "b"}}), STOP, b"[DONE]"),
    ],
)
async def test_a_small_model_that_fails_before_it_is_evaluated_whole_is_replaced(
    tmp_path: Path, last: tuple[bytes, ...], stream: bool
) -> None:
    policy = POLICY.format(folder=tmp_path).replace("first_tokens: 3", "first_tokens: 8")
    async with running(tmp_path, policy=policy) as stack:
        stack.small.otherwise, stack.large.otherwise = ending(*last), engine("a large answer came", SURE)
        reply = await stack.call(chat(stream=stream))
        if stream and STOP in last:  # evaluated at the finish, before its other choice could be missed
            assert reply.headers["x-penstock-deployment"] == "small"
            assert b"[DONE]" not in reply.body
            assert b'"error"' in reply.body
        else:
            assert (reply.headers["x-penstock-deployment"], text_of(reply.body)) == ("large", "alargeanswercame")


async def test_an_answer_that_cannot_be_put_together_is_requested_plainly(tmp_path: Path) -> None:
    call = {"index": 3_000_000, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    last = event({"delta": {"tool_calls": [call]}}), event({"delta": {}, "finish_reason": "tool_calls"}), b"[DONE]"
    strict = EjectionRules(consecutive_failures=1)
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path), ejection=strict) as stack:
        stack.small.otherwise, stack.large.otherwise = ending(*last), engine("a large answer came", SURE)
        for _ in range(2):
            reply = await stack.call(chat())
            assert (reply.headers["x-penstock-deployment"], text_of(reply.body)) == ("small", "aplainanswercame")
        assert stack.lines()[0]["attempts"] == 2


async def test_a_plain_answer_of_a_cascade_has_every_field(tmp_path: Path) -> None:
    extra = {"delta": {"annotations": [{"type": "url_citation"}], "reasoning_details": [{"index": 0, "text": "hm"}]}}
    last = event(extra), event({"delta": {}, "finish_reason": "stop", "stop_reason": 7}), event(None, (7, 4))
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.otherwise = ending(*last)
        (choice,) = (await stack.call(chat())).json["choices"]
        assert choice["stop_reason"] == 7
        assert choice["message"]["annotations"] == [{"type": "url_citation"}]
        assert choice["message"]["reasoning_details"] == [{"index": 0, "text": "hm"}]


async def test_an_upstream_that_streams_nothing_is_sent_plainly(tmp_path: Path) -> None:
    async def only_plain(wire: Wire) -> None:
        if wire.request.json.get("stream"):
            await wire.answer(b'{"error": {"message": "no streams"}}', 400)
        else:
            await engine("a small answer came", SURE)(wire)

    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.otherwise = only_plain
        reply = await stack.call(chat())
        assert (reply.status, text_of(reply.body)) == (200, "asmallanswercame")


async def test_a_long_plain_answer_is_put_together_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.forwarding.cascade.MAX_ASSEMBLED_HERE_BYTES", 100)
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        deployment, text, _ = await call(stack, SURE)
        assert (deployment, text) == ("small", "asmallanswercame")


async def test_an_answer_that_ends_early_is_evaluated_by_all_of_it(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        for logprobs, expected in (((-0.01,), "small"), ((-0.9,), "large")):
            stack.small.otherwise = engine("Yes", logprobs)
            stack.large.otherwise = engine("No", (-0.01,))
            for stream in (False, True):
                reply = await stack.call(chat(stream=stream))
                assert reply.headers["x-penstock-deployment"] == expected


async def test_where_nobody_can_take_over_the_small_answer_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        live = stack._live()[1]
        live.is_ready = False
        deployment, text, _ = await call(stack, UNSURE, stream=True)
        assert (deployment, text) == ("small", "asmallanswercame")
        assert 'choice="small",policy="cascade",reason="kept"} 1.0' in await decisions(stack)


async def test_when_the_large_model_fails_the_small_one_answers_after_all(tmp_path: Path) -> None:
    async def broken(wire: Wire) -> None:
        wire.abort()

    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.large.scripts = [broken, broken]
        deployment, text, _ = await call(stack, UNSURE, stream=True)
        assert (deployment, text) == ("small", "asmallanswercame")
        assert 'choice="small",policy="cascade",reason="taken_back"} 1.0' in await decisions(stack)


async def test_a_small_model_that_is_down_is_passed_over(tmp_path: Path) -> None:
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack._live()[0].is_ready = False
        deployment, text, _ = await call(stack, SURE)
        assert (deployment, text) == ("large", "alargeanswercame")


async def test_a_small_model_that_breaks_off_while_it_is_evaluated_is_replaced(tmp_path: Path) -> None:
    async def breaks(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(event({"delta": {"content": "a"}, "logprobs": {"content": [notified("a", -0.1)]}}))
        wire.abort()

    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.scripts = [breaks]
        stack.large.otherwise = engine("a large answer came", SURE)
        reply = await stack.call(chat(stream=True))
        assert (reply.headers["x-penstock-deployment"], text_of(reply.body)) == ("large", "alargeanswercame")


@pytest.mark.parametrize("slow", ["small", "large"])
async def test_a_client_that_leaves_cancels_whichever_model_runs(tmp_path: Path, slow: str) -> None:
    async def waits(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(event({"delta": {"content": "a"}, "logprobs": {"content": [notified("a", -0.3)]}}))
        await wire.is_gone.wait()

    async with running(tmp_path, policy=POLICY.format(folder=tmp_path)) as stack:
        stack.small.otherwise = engine("a small answer came", UNSURE)
        upstream = stack.small if slow == "small" else stack.large
        upstream.scripts = [waits]
        _, writer = await stack.connect()
        writer.write(encode(chat(stream=True)))
        await asyncio.wait_for(upstream.got_request.wait(), 30)
        if slow == "large":
            await asyncio.sleep(0)
        writer.close()
        await asyncio.wait_for(upstream.gone.wait(), 30)
        await stack.until_idle()


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_small_model_that_stalls_before_its_first_token_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    monkeypatch.setattr("gateway.deployments.flight.STRANGER_S", 0.2)
    rules = EjectionRules(stall=StallRules(least_s=0.2))
    async with running(tmp_path, policy=POLICY.format(folder=tmp_path), ejection=rules) as stack:
        stack.small.otherwise, stack.large.otherwise = hang, engine("the large one says", SURE)
        if is_stream:  # what is usual is known
            for _ in range(MIN_SAMPLES):
                stack.gateway._current().deployments["small"].first_bytes.add(time.monotonic(), 0.01)
        reply = await stack.call(chat(stream=is_stream))

        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "large")
