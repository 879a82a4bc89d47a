"""Faults of one exchange with an upstream: what the client gets, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.stack import failing, faulty, frozen, streaming, text_of
from tests.gateway.scripted import COMPLETION, Wire, chunk, complete, hang
from tests.gateway.stack import chat, encode
from tests.support.fault_proxy import FullBacklog


async def test_a_refused_connection_is_answered_by_the_next_deployment(tmp_path: Path) -> None:
    """Fault row 11."""
    async with faulty(tmp_path) as stack:
        await stack.proxies[0].down()
        stack.live(0).is_ready = True
        reply = await stack.call(chat(stream=True))

        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "e1")
        await stack.proxies[1].down()
        for number in (0, 1):
            stack.live(number).is_ready = True
        assert (await stack.call(chat())).status == 502
        await stack.check_invariants(2)


async def test_a_black_hole_costs_the_connect_limit_and_no_more(tmp_path: Path) -> None:
    """Fault row 12: a full accept queue drops the SYN, which looks the same as a dropped packet."""
    with FullBacklog() as hole:
        lost = f'  - {{id: hole, url: "http://127.0.0.1:{hole.port}", model: tiny}}'
        async with faulty(tmp_path, connect_ms=300) as stack:
            text = (tmp_path / "policy.yaml").read_text()
            text = text.replace("lanes:", f"{lost}\nlanes:").replace("candidates: [", "candidates: [hole, ")
            (tmp_path / "policy.yaml").write_text(text)
            while "hole" not in stack.gateway._current().deployments:
                await asyncio.sleep(0.01)
            stack.gateway._current().deployments["hole"].is_ready = True
            begun = time.monotonic()
            reply = await stack.call(chat(stream=True))

            assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "e0")
            assert 0.3 <= time.monotonic() - begun < 2  # connect_ms is 300
            await stack.check_invariants(1)


async def test_an_upstream_that_never_answers_is_left_at_the_first_token_deadline(tmp_path: Path) -> None:
    """Fault row 13: another deployment answers, for nothing was sent to the client; without one it is a 504."""
    async with faulty(tmp_path, first_token_ms=150) as stack:
        stack.engines[0].otherwise = hang
        reply = await stack.call(chat(stream=True))
        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "e1")

        stack.engines[1].otherwise = hang
        reply = await stack.call(chat(stream=True))
        assert (reply.status, reply.error["code"]) == (504, "upstream_timeout")
        await stack.check_invariants(2)


async def test_a_second_attempt_gets_only_the_time_that_is_left(tmp_path: Path) -> None:
    """Fault row 13: the client's deadline and the route's total hold for all attempts together, and travel on."""
    async with faulty(tmp_path, first_token_ms=150) as stack:
        stack.engines[0].otherwise = hang
        await stack.call(chat(stream=True), headers={"x-stainless-read-timeout": "5"})
        stack.engines[0].otherwise = failing(500)
        await stack.call(chat(), headers={"x-stainless-timeout": "5"})

        stream, plain = (int(received.headers["x-penstock-deadline-ms"]) for received in stack.engines[1].received)
        assert 19_000 < stream <= 19_850  # the route's 20 s, less the first attempt's 0.15 s
        assert plain <= 5000
        await stack.check_invariants(2)


async def test_no_retry_once_the_client_has_seen_a_byte(tmp_path: Path) -> None:
    """Fault row 13 and 16: the second deployment is not called."""

    async def one_token(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("hel"))
        await wire.is_gone.wait()

    async with faulty(tmp_path, inter_token_ms=100) as stack:
        stack.engines[0].scripts = [one_token]
        reply = await stack.call(chat(stream=True))

        assert text_of(reply.body) == "hel"
        assert stack.engines[1].received == []
        await stack.check_invariants(1)


@pytest.mark.parametrize("code", [500, 502, 503, 529])
async def test_a_server_error_is_answered_by_another_deployment_once(tmp_path: Path, code: int) -> None:
    """Fault row 14: one retry elsewhere, the breaker counts, and Retry-After is stored when both fail."""
    async with faulty(tmp_path, num=3) as stack:
        for engine in stack.engines:
            engine.otherwise = failing(code, retry_after="7")
        reply = await stack.call(chat())

        assert reply.status == (503 if code in (503, 529) else 502)
        if code in (503, 529):
            assert reply.headers["retry-after"] == "7"
        assert [len(engine.received) for engine in stack.engines] == [1, 1, 0]
        await stack.check_invariants(1)


async def test_a_deployment_that_answers_429_is_left_alone_for_as_long_as_it_states(tmp_path: Path) -> None:
    """Fault row 15: others answer while there are any; alone it is passed on, and then refused without calling."""
    async with faulty(tmp_path) as stack:
        stack.engines[0].otherwise = failing(429, retry_after="20")
        replies = [await stack.call(chat()) for _ in range(5)]

        assert [reply.status for reply in replies] == [200] * 5
        assert len(stack.engines[0].received) == 1
        stack.engines[1].otherwise = failing(429, retry_after="30")
        replies = [await stack.call(chat()) for _ in range(4)]
        assert (replies[0].status, replies[0].headers["retry-after"]) == (429, "30")
        assert [reply.status for reply in replies[1:]] == [429] * 3
        assert 15 <= int(replies[1].headers["retry-after"]) <= 20  # e0 is the first that may be called again
        assert [len(engine.received) for engine in stack.engines] == [1, 6]
        await stack.check_invariants(9)


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_stream_cut_after_some_tokens_ends_with_an_error_event(tmp_path: Path, how: Any) -> None:
    """Fault row 16: no silent cut, no second text."""
    async with faulty(tmp_path) as stack:
        stack.engines[0].otherwise = streaming("one", "two", "three", "four", pause_s=0.03)
        stack.proxies[0].toxics.limit_bytes = 700
        stack.proxies[0].toxics.limit_ends = how
        await stack.gateway._prober.probe_all()
        reply = await stack.call(chat(stream=True))

        assert reply.status == 200
        assert "onetwothreefour".startswith(text_of(reply.body))
        last = reply.body.rstrip().split(b"data: ")[-1]
        assert json.loads(last)["error"]["code"] == "upstream_error"
        assert b"[DONE]" not in reply.body
        assert stack.engines[1].received == []
        stack.proxies[0].toxics.limit_bytes = None
        await stack.check_invariants(1)


async def test_a_stream_that_stalls_ends_with_an_error_event_in_spite_of_heartbeats(tmp_path: Path) -> None:
    """Fault row 17."""

    async def heartbeats(wire: Wire) -> None:
        await wire.start_stream()
        for text in ("a", "b", "c"):
            await wire.event(chunk(text))
        while not wire.is_gone.is_set():
            await wire.send(b"6\r\n: hb\n\n\r\n")
            await asyncio.sleep(0.02)

    async with faulty(tmp_path, inter_token_ms=120) as stack:
        stack.engines[0].scripts = [heartbeats]
        begun = time.monotonic()
        reply = await stack.call(chat(stream=True))

        assert time.monotonic() - begun < 2
        assert text_of(reply.body) == "abc"
        assert json.loads(reply.body.rstrip().split(b"data: ")[-1])["error"]["code"] == "upstream_timeout"
        await stack.check_invariants(1)


@pytest.mark.parametrize("how", ["reset", "close", "stall"])
async def test_behind_its_end_mark_a_stream_can_no_longer_fail(tmp_path: Path, how: str) -> None:
    """Fault rows 16 to 18: the last chunk's framing is missing, the answer is whole, and no error follows it."""

    async def script(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("hello"))
        await wire.event(chunk(finish="stop"))
        await wire.event(b"[DONE]")
        if how == "reset":
            wire.abort()
        elif how == "close":
            wire.writer.close()
        else:
            await wire.is_gone.wait()

    async with faulty(tmp_path, inter_token_ms=150) as stack:
        stack.engines[0].scripts = [script]
        reply = await stack.call(chat(stream=True))

        assert text_of(reply.body) == "hello"
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert b'"error"' not in reply.body
        line = (await stack.recorded(1))[0]
        assert (line["outcome"], line.get("is_incomplete")) == ("completed", None)
        await stack.check_invariants(1)


@pytest.mark.parametrize(("status", "body", "is_reused"), [
    (200, COMPLETION, True), (400, b'{"error":{"message":"no"}}', True), (200, b"answer to nobody", False),
    (500, b"{}", False), (408, b"{}", False),
])  # fmt: skip
async def test_a_connection_whose_answer_may_be_anothers_carries_no_further_request(
    tmp_path: Path, status: int, body: bytes, is_reused: bool
) -> None:
    """An upstream that writes one response too many would give each following one to the wrong client."""

    async def script(wire: Wire) -> None:
        await wire.answer(body, status)

    async with faulty(tmp_path, num=1) as stack:
        await stack.call(chat())
        before = stack.proxies[0].num_accepted
        stack.engines[0].scripts = [script]
        await stack.call(chat())
        assert (await stack.call(chat())).status == 200
        assert (stack.proxies[0].num_accepted == before) is is_reused
        await stack.check_invariants(3)


@pytest.mark.parametrize("with_finish", [True, False])
async def test_a_stream_without_an_end_is_flagged(tmp_path: Path, with_finish: bool) -> None:
    """Fault row 18: incomplete unless a finish reason came; a cache may keep complete answers only."""

    async def script(wire: Wire) -> None:
        await wire.start_stream()
        await wire.event(chunk("hel"))
        if with_finish:
            await wire.event(chunk(finish="stop"))
        await wire.end()

    async with faulty(tmp_path) as stack:
        stack.engines[0].scripts = [script]
        reply = await stack.call(chat(stream=True))

        assert (b'"error"' in reply.body) is not with_finish
        assert bool((await stack.recorded(1))[0].get("is_incomplete")) is not with_finish
        await stack.check_invariants(1)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
async def test_bytes_come_through_whatever_their_slicing_and_line_ends(tmp_path: Path, end: bytes) -> None:
    """Fault row 19: one byte at a time, text of several bytes cut anywhere, every line ending."""
    events = [chunk("Straße "), chunk("日本語 "), chunk("🙂"), chunk(finish="stop"), b"[DONE]"]
    body = b"".join(b"data: " + event + end for event in events)

    async def script(wire: Wire) -> None:
        await wire.start_stream()
        for position in range(0, len(body), 7):
            piece = body[position : position + 7]
            await wire.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        await wire.end()

    async with faulty(tmp_path) as stack:
        stack.engines[0].scripts = [script]
        stack.proxies[0].toxics.slice_bytes = 1
        reply = await stack.call(chat(stream=True))

        assert reply.body == body
        await stack.check_invariants(1)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nhello",
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
)
async def test_bad_framing_is_a_502_and_the_connection_is_dropped(tmp_path: Path, raw: bytes) -> None:
    """Fault row 20."""

    async def script(wire: Wire) -> None:
        await wire.send(raw)
        wire.writer.close()

    async with faulty(tmp_path, num=1) as stack:
        stack.engines[0].scripts = [script]
        assert (await stack.call(chat())).status == 502
        assert stack.live(0).client.snapshot().num_idle == 0
        assert (await stack.call(chat())).status == 200
        await stack.check_invariants(2)


async def test_a_body_longer_than_declared_is_cut_at_its_length_and_the_connection_dropped(tmp_path: Path) -> None:
    """Fault row 20: what follows cannot be trusted, so nobody gets it."""
    body = json.dumps({"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}).encode()

    async def script(wire: Wire) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        await wire.send(head + body + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret")

    async with faulty(tmp_path, num=1) as stack:
        stack.engines[0].scripts = [script]
        first = await stack.call(chat())
        second = await stack.call(chat())

        assert b"secret" not in first.body + second.body
        assert second.status == 200
        await stack.check_invariants(2)


@pytest.mark.parametrize("where", ["line", "headers", "body"])
async def test_endless_output_is_capped(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault row 21: a 502 after a bounded amount, whichever part never ends."""
    monkeypatch.setattr("gateway.forwarding.whole_answers.MAX_PLAIN_BYTES", 1_000_000)
    sent = 0

    async def script(wire: Wire) -> None:
        nonlocal sent
        begin = {"line": b"HTTP/1.1 200 ", "headers": b"HTTP/1.1 200 OK\r\n", "body": b"HTTP/1.1 200 OK\r\n\r\n"}[where]
        piece = b"x: y\r\n" * 2000 if where == "headers" else b"y" * 12_000
        await wire.send(begin)
        while sent < 100_000_000 and not wire.is_gone.is_set():
            await wire.send(piece)
            sent += len(piece)

    async with faulty(tmp_path, num=1) as stack:
        stack.engines[0].scripts = [script]
        reply = await stack.call(chat())

        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        await asyncio.wait_for(stack.engines[0].gone.wait(), 2)
        assert sent < 20_000_000  # the cap, and what socket buffers hold
        await stack.check_invariants(1)


async def test_a_keep_alive_that_ends_as_we_send_is_invisible(tmp_path: Path) -> None:
    """Fault row 27: one transparent resend while no byte of a response came."""
    async with faulty(tmp_path, num=1) as stack:
        assert (await stack.call(chat())).status == 200
        for _ in range(5):
            stack.proxies[0].toxics.resets_on_request = True
            requested = asyncio.create_task(stack.call(chat()))
            accepted = stack.proxies[0].num_accepted
            while not requested.done() and stack.proxies[0].num_accepted == accepted:
                await asyncio.sleep(0)
            stack.proxies[0].toxics.resets_on_request = False
            assert (await requested).status == 200
        lines = await stack.recorded(6)
        assert {line["attempts"] for line in lines} == {1}
        await stack.check_invariants(6)


async def test_answers_of_one_tenant_never_reach_another_through_all_of_it(tmp_path: Path) -> None:
    """Fault rows 10, 16 and 20 at once: canaries of two tenants, cuts and leavers between."""

    async def echo(wire: Wire) -> None:
        canary = wire.request.json["messages"][0]["content"]
        await wire.start_stream()
        for _ in range(5):
            await wire.event(chunk(canary))
            await asyncio.sleep(0.001)
        await wire.event(chunk(finish="stop"))
        await wire.event(b"[DONE]")
        await wire.end()

    async with faulty(tmp_path, select="policy: least_in_flight") as stack:
        for engine in stack.engines:
            engine.otherwise = echo

        async def one(number: int) -> None:
            canary = f"canary-{number}-"
            reader, writer = await stack.connect()
            body = chat(stream=True, messages=[{"role": "user", "content": canary}])
            writer.write(encode(body))
            if number % 3 == 0:
                await asyncio.sleep(number % 7 / 1000)
                writer.transport.abort()
                return
            raw = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            seen = {word for word in raw.decode(errors="replace").split('"') if word.startswith("canary-")}
            assert seen <= {canary}

        for number, proxy in enumerate(stack.proxies):
            proxy.toxics.limit_bytes = 4000 + 1000 * number
        await asyncio.gather(*(one(number) for number in range(120)))
        for proxy in stack.proxies:
            proxy.toxics.limit_bytes = None
        await stack.check_invariants(120)


async def test_complete_and_frozen_scripts_are_what_they_state(tmp_path: Path) -> None:
    """The scripts of these tests: one answers, one takes the request and gives no token."""
    async with faulty(tmp_path, num=1, first_token_ms=100) as stack:
        stack.engines[0].scripts = [complete, frozen]
        assert (await stack.call(chat(stream=True))).status == 200
        assert (await stack.call(chat(stream=True))).status == 504
        await stack.check_invariants(2)
