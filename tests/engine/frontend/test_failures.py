"""The core dies, hangs, or fails one sequence: every client gets an answer, and the next request is served."""

from __future__ import annotations

import asyncio
import json

import pytest

from engine.frontend.text.detokenizer import Detokenizer
from engine.frontend.text.tokenizer import Tokenizer
from engine.protocol import Fatal, SeqOutput
from tests.engine.frontend.conftest import PATIENCE, Running, StartFront, chat
from tests.engine.frontend.tiny_model import END

PATH = "/v1/chat/completions"


async def test_core_death_before_the_first_token_is_a_502_in_the_envelope(running: Running) -> None:
    core = await running.core()
    requests = [asyncio.create_task(running.client.post(PATH, json=chat(stream=stream))) for stream in (True, False)]
    for _ in requests:
        await core.next_add()
    core.die()
    for request in requests:
        response = await request
        assert response.status_code == 502
        assert response.json()["error"]["code"] == "upstream_error"
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


async def test_core_death_mid_stream_is_an_error_event_and_a_closed_connection_without_done(running: Running) -> None:
    core = await running.core()
    client = await running.raw("POST", PATH, chat(stream=True))
    add = await core.next_add()
    core.emit(add.seq_id, running.ids("hello"))
    await client.read_until(b'"content":"hello"')
    core.die()
    rest = await client.read_to_end()
    assert b'data: {"error":{"message":' in rest
    assert b"[DONE]" not in rest
    await client.leave()


async def test_a_dead_core_is_started_again_and_serves(running: Running) -> None:
    first = await running.core()
    first.die()
    second = await running.core()
    assert second is not first
    request = asyncio.create_task(running.client.post(PATH, json=chat()))
    add = await second.next_add()
    second.emit(add.seq_id, [END], "stop")
    assert (await request).status_code == 200


async def test_readiness_is_false_while_there_is_no_core(start_front: StartFront) -> None:
    async with start_front(starts_up=False) as running:
        core = await running.cores.next()
        response = await running.client.get("/readyz")
        assert (response.status_code, response.json()["state"]) == (503, "starting")
        refused = await running.client.post(PATH, json=chat())
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_is_overloaded")
        assert refused.headers["retry-after"] == "1"
        core.start_up()
        await running.until_ready()
        running.cores.starts_up = False
        core.announce(Fatal(message="out of memory"))
        core.die()
        await running.cores.next()
        assert (await running.client.get("/readyz")).status_code == 503


async def test_a_core_that_is_silent_with_requests_open_is_replaced(start_front: StartFront) -> None:
    from dataclasses import replace

    async with start_front(patience=replace(PATIENCE, hang_s=0.1)) as running:
        core = await running.core()
        response = await running.client.post(PATH, json=chat())
        assert response.status_code == 502
        assert core.was_pushed
        await running.core()


async def test_an_idle_core_may_be_silent(start_front: StartFront) -> None:
    from dataclasses import replace

    async with start_front(patience=replace(PATIENCE, hang_s=0.05)) as running:
        core = await running.core()
        await asyncio.sleep(0.15)
        request = asyncio.create_task(running.client.post(PATH, json=chat()))
        core.emit((await core.next_add()).seq_id, [END], "stop")
        assert (await request).status_code == 200


async def test_a_core_that_breaks_the_protocol_is_replaced(running: Running) -> None:
    core = await running.core()
    assert core._writer is not None
    core._writer.write(b"\x00\x00\x00\x03abc")
    assert await running.core() is not core


async def test_one_failed_sequence_is_its_own_requests_error(running: Running) -> None:
    core = await running.core()
    requests = [asyncio.create_task(running.client.post(PATH, json=chat())) for _ in range(2)]
    bad, good = await core.next_add(), await core.next_add()
    core.emit(bad.seq_id, [], "error", error="not a number")
    core.emit(good.seq_id, [END], "stop")
    assert sorted([(await request).status_code for request in requests]) == [200, 502]


async def test_a_grammar_that_fails_right_behind_a_token_is_still_the_requests_fault(running: Running) -> None:
    core = await running.core()
    schema = {"type": "json_schema", "json_schema": {"name": "text", "schema": {"type": "string"}}}
    request = asyncio.create_task(running.client.post(PATH, json=chat(response_format=schema)))
    add = await core.next_add()
    # Both in one report: the reader finds them together and takes them as one.
    core.step(
        [
            SeqOutput(seq_id=add.seq_id, token_ids=running.ids("hello")),
            SeqOutput(seq_id=add.seq_id, token_ids=[], finish_reason="error", error="too complex", fault="grammar"),
        ]
    )
    response = await request
    assert response.status_code == 400
    assert "too complex" in response.json()["error"]["message"]


async def test_a_failed_choice_aborts_the_others(running: Running) -> None:
    core = await running.core()
    request = asyncio.create_task(running.client.post(PATH, json=chat(n=2)))
    first, second = await core.next_add(), await core.next_add()
    core.emit(first.seq_id, [], "error", error="broken")
    assert (await core.next_abort()).seq_ids == [second.seq_id]
    assert (await request).status_code == 502


async def test_a_deadline_that_passes_unanswered_is_shed_and_a_late_cut_is_an_event(running: Running) -> None:
    core = await running.core()
    request = asyncio.create_task(running.client.post(PATH, json=chat(), headers={"x-penstock-deadline-ms": "50"}))
    core.emit((await core.next_add()).seq_id, [], "abort", error="the deadline has passed")
    response = await request
    assert response.status_code == 503
    assert response.headers["x-penstock-shed-reason"] == "deadline"
    assert response.headers["x-should-retry"] == "false"
    client = await running.raw("POST", PATH, chat(stream=True), "x-penstock-deadline-ms: 50\r\n")
    add = await core.next_add()
    core.emit(add.seq_id, running.ids("hello"))
    await client.read_until(b'"content":"hello"')
    core.emit(add.seq_id, [], "abort")
    assert b'"code":"upstream_timeout"' in await client.read_to_end()
    await client.leave()


@pytest.mark.parametrize("deadline_ms", ["0", "-1", "-99999", "0.0"])
async def test_a_spent_deadline_never_reaches_the_core(running: Running, deadline_ms: str) -> None:
    core = await running.core()
    response = await running.client.post(PATH, json=chat(), headers={"x-penstock-deadline-ms": deadline_ms})
    assert (response.status_code, response.headers["x-penstock-shed-reason"]) == (503, "deadline")
    assert core.adds.empty()


async def test_a_deadline_holds_though_the_core_is_silent(running: Running) -> None:
    core = await running.core()
    request = asyncio.create_task(running.client.post(PATH, json=chat(), headers={"x-penstock-deadline-ms": "50"}))
    add = await core.next_add()
    assert (await core.next_abort()).seq_ids == [add.seq_id]
    response = await request
    assert (response.status_code, response.headers["x-penstock-shed-reason"]) == (503, "deadline")
    core.emit(add.seq_id, [], "abort")  # too late to be another end
    assert (await running.client.get("/readyz")).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_deadline_in_the_middle_of_an_answer_is_a_timeout_though_the_core_is_silent(
    running: Running, stream: bool
) -> None:
    core = await running.core()
    client = await running.raw("POST", PATH, chat(stream=stream), "x-penstock-deadline-ms: 150\r\n")
    add = await core.next_add()
    core.emit(add.seq_id, running.ids("hello"))
    reported = await client.read_until(b'"code":"upstream_timeout"') if stream else await client.read_until(b"}}")
    assert (await core.next_abort()).seq_ids == [add.seq_id]
    assert reported.startswith(b"HTTP/1.1 200" if stream else b"HTTP/1.1 504")
    assert b'"code":"upstream_timeout"' in reported
    assert (b'"content":"hello"' in reported) == stream
    await client.leave()


async def test_what_the_core_states_of_a_hopeless_deadline_reaches_the_client(running: Running) -> None:
    core = await running.core()
    request = asyncio.create_task(running.client.post(PATH, json=chat(), headers={"x-penstock-deadline-ms": "5000"}))
    core.emit((await core.next_add()).seq_id, [], "abort", error="the first token is expected in 9.00 s")
    response = await request
    assert (response.status_code, response.headers["x-should-retry"]) == (503, "false")
    assert "9.00 s" in response.json()["error"]["message"]
    assert "retry-after" not in response.headers


async def test_a_full_queue_is_shed_at_once(start_front: StartFront) -> None:
    async with start_front(max_waiting=2) as running:
        core = await running.core()
        requests = [asyncio.create_task(running.client.post(PATH, json=chat())) for _ in range(2)]
        adds = [await core.next_add() for _ in requests]
        refused = await running.client.post(PATH, json=chat())
        assert (refused.status_code, refused.headers["x-penstock-shed-reason"]) == (503, "queue_full")
        for add in adds:
            core.emit(add.seq_id, [END], "stop")
        assert [(await request).status_code for request in requests] == [200, 200]


async def test_a_prompt_that_cannot_fit_is_refused_with_both_numbers(start_front: StartFront) -> None:
    async with start_front(max_model_len=64) as running:
        core = await running.core()
        for body in (chat("one two three four. " * 40), chat("x" * 100_000), chat(max_tokens=60)):
            response = await running.client.post(PATH, json=body)
            error = response.json()["error"]
            assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
            assert "64 tokens" in error["message"]
        assert core.adds.empty()


async def test_a_bug_of_ours_is_a_500_with_the_request_id_and_nothing_else(running: Running) -> None:
    core = await running.core()
    request = asyncio.create_task(running.client.post(PATH, json=chat(), headers={"x-request-id": "abc-1"}))
    add = await core.next_add()
    core.step([SeqOutput(seq_id=add.seq_id, token_ids=[5], logprobs=[])])
    response = await request
    assert response.status_code == 500
    assert response.json()["error"]["message"] == "Internal error; request id abc-1."
    assert (await core.next_abort()).seq_ids == [add.seq_id]


async def test_a_bug_of_ours_mid_stream_is_an_error_event(running: Running) -> None:
    core = await running.core()
    client = await running.raw("POST", PATH, chat(stream=True))
    add = await core.next_add()
    core.emit(add.seq_id, running.ids("hello"))
    await client.read_until(b'"content":"hello"')
    core.step([SeqOutput(seq_id=add.seq_id, token_ids=[5], logprobs=[])])
    rest = await client.read_to_end()
    error = json.loads(rest[rest.index(b"data: ") + 6 : rest.rindex(b"}") + 1])
    assert error["error"]["code"] == "internal_error"
    assert b"[DONE]" not in rest
    await client.leave()


class PanicException(BaseException):
    """As pyo3 raises it when Rust code panics: no Exception."""


@pytest.mark.parametrize("text", ["hello", "hello " * 2000], ids=["on the loop", "off the loop"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_panic_of_the_tokenizer_is_a_500_in_the_envelope_and_the_engine_lives(
    start_front: StartFront, monkeypatch: pytest.MonkeyPatch, text: str, path: str
) -> None:
    def panic(*_: object) -> list[int]:
        raise PanicException("index out of bounds")

    async with start_front(max_model_len=100_000) as running:
        core = await running.core()
        body = {"model": "tiny", "prompt": text} if path == "/v1/completions" else chat(text)
        with monkeypatch.context() as patched:
            patched.setattr(Tokenizer, "encode_segments", panic)
            patched.setattr(Tokenizer, "encode_text", panic)
            response = await running.client.post(path, json=body)
        assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
        assert response.headers["x-request-id"] in response.json()["error"]["message"]
        assert "bounds" not in response.text
        request = asyncio.create_task(running.client.post(path, json=body))
        core.emit((await core.next_add()).seq_id, running.ids("hello"), "length")
        assert (await request).status_code == 200


async def test_a_panic_mid_stream_is_an_error_event(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    core = await running.core()
    connection = await running.raw("POST", "/v1/chat/completions", chat(stream=True))
    add = await core.next_add()
    core.emit(add.seq_id, running.ids("hello"))
    await connection.read_until(b"data: ")

    def panic(*_: object) -> bytes:
        raise PanicException

    monkeypatch.setattr(Detokenizer, "feed", panic)
    core.emit(add.seq_id, running.ids(" world"))
    rest = await connection.read_to_end()
    assert b'"code":"internal_error"' in rest
    assert b"[DONE]" not in rest
    assert (await core.next_abort()).seq_ids == [add.seq_id]
    await connection.leave()
