"""A request under way: its deadline, its failures and the outputs that arrive together."""

from __future__ import annotations

import asyncio

import pytest

from engine.protocol import SeqOutput
from tests.engine.frontend.conftest import Running, chat
from tests.engine.frontend.tiny_model import END

PATH = "/v1/chat/completions"


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


async def test_a_schema_that_cannot_be_followed_is_named_with_its_tool(running: Running) -> None:
    core = await running.core()
    named = {"type": "json_schema", "json_schema": {"name": "text", "schema": {"type": "string"}, "strict": True}}
    request = asyncio.create_task(running.client.post(PATH, json=chat(response_format=named)))
    add = await core.next_add()
    error = "at 2(1): failed to compile JSON schema: no."
    core.step([SeqOutput(seq_id=add.seq_id, token_ids=[], finish_reason="error", error=error, fault="grammar")])
    refusal = (await request).json()["error"]
    assert refusal["param"] == "response_format"
    assert refusal["message"] == "`response_format` has a schema that cannot be followed: no."


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
