"""Attempts: until the first byte another deployment can take over, within a budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.forwarding.test_error_mapping import HEARTBEATS, NO_COMPLETIONS, beats, status
from tests.gateway.scripted import Wire, chunk
from tests.gateway.stack import NO_EJECTION, chat, policy_text, running


async def test_a_dead_deployment_is_replaced_before_the_first_byte(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.small.close()
        live = stack.gateway._current().deployments["small"]
        live.is_ready = True

        reply = await stack.call(chat())

        assert reply.status == 200
        assert reply.headers["x-penstock-deployment"] == "large"
        assert stack.large.received[0].json["model"] == "big"
        assert stack.lines()[0]["attempts"] == 2
        assert not live.is_ready
        metrics = (await stack.get("/metrics", admin=True)).body.decode()
        assert 'penstock_retries_total{deployment="small"} 1.0' in metrics


async def test_a_dead_only_candidate_is_a_502(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.small.close()
        stack.gateway._current().deployments["small"].is_ready = True

        reply = await stack.call(chat("solo"))

        assert (reply.status, reply.error["code"]) == (502, "upstream_error")
        assert str(tmp_path) not in reply.error["message"]


@pytest.mark.parametrize("code", [500, 502, 503, 529])
async def test_a_server_error_is_retried_once_elsewhere(tmp_path: Path, code: int) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts = [status(code)]
        assert (await stack.call(chat())).status == 200

        stack.small.scripts, stack.large.scripts = [status(code)], [status(code)]
        reply = await stack.call(chat())
        assert reply.status == (503 if code in (503, 529) else 502)
        assert len(stack.small.received) == len(stack.large.received) == 2


@pytest.mark.parametrize("script", NO_COMPLETIONS)
async def test_another_deployment_answers_for_one_that_gives_no_completions(
    tmp_path: Path, script: Callable[[Wire], Any]
) -> None:
    async with running(tmp_path) as stack:
        stack.small.scripts, stack.large.scripts = [script], [script]
        for stream in (False, True):
            reply = await stack.call(chat(stream=stream))

            assert reply.status == (502 if not stream else 200)
        assert len(stack.small.received) + len(stack.large.received) == 3


@pytest.mark.parametrize("heartbeat", HEARTBEATS)
@pytest.mark.parametrize("first", [None, chunk("")])
async def test_another_deployment_answers_for_one_that_sends_heartbeats_only(
    tmp_path: Path, heartbeat: bytes, first: bytes | None
) -> None:
    async with running(tmp_path, first_token_ms=150, inter_token_ms=100) as stack:
        stack.small.scripts = [beats(first, heartbeat)]
        reply = await stack.call(chat(stream=True))

        assert (reply.status, reply.headers["x-penstock-deployment"]) == (200, "large")
        assert reply.body.endswith(b"[DONE]\n\n")
        await asyncio.wait_for(stack.small.gone.wait(), 1)


async def test_an_upstream_that_dies_before_its_first_event_can_still_be_replaced_by_a_status(tmp_path: Path) -> None:
    async def head_only(wire: Wire) -> None:
        await wire.start_stream()
        await asyncio.sleep(0.02)
        wire.abort()

    async with running(tmp_path) as stack:
        stack.small.scripts = [head_only]
        reply = await stack.call(chat("solo", stream=True))

        assert reply.status == 502


async def test_no_ready_deployment_sheds_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        for live in stack.gateway._current().deployments.values():
            live.is_ready = False

        reply = await stack.call(chat())

        assert (reply.status, reply.headers["x-penstock-shed-reason"]) == (503, "overload")


async def test_the_retry_budget_bounds_second_attempts(tmp_path: Path) -> None:
    async with running(tmp_path, ejection=NO_EJECTION) as stack:
        stack.small.otherwise = status(500)
        for _ in range(30):
            await stack.call(chat())

        assert 10 <= len(stack.large.received) <= 14  # the reserve of 10, and a tenth of 30


async def test_the_salt_of_a_tenants_prefixes_is_in_the_body_where_the_deployment_reads_it_there(
    tmp_path: Path,
) -> None:
    policy = policy_text(tmp_path).replace("model: tiny,", "model: tiny, prefix_salt: body,")
    async with running(tmp_path, policy=policy) as stack:
        await stack.call(chat("solo"))
        await stack.call(chat("solo", cache_salt="mine"))
        plain, own = stack.small.received
        salt = plain.headers["x-penstock-cache-salt"]
        assert salt
        assert plain.json == {**chat("tiny"), "cache_salt": salt}
        assert own.json == {**chat("tiny"), "cache_salt": f"{salt}:mine"}


async def test_else_a_body_has_no_salt_but_the_clients_own(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        await stack.call(chat("solo"))
        await stack.call(chat("solo", cache_salt="mine"))
        assert [one.json.get("cache_salt") for one in stack.small.received] == [None, "mine"]
