"""Policies that change while requests are served."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.gateway.app.test_app import until
from tests.gateway.stack import chat, policy_text, running


async def test_a_new_policy_is_in_force_within_a_second_and_requests_under_way_keep_theirs(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        gate = asyncio.Event()
        stack.small.scripts = [until(gate)]  # type: ignore[list-item]
        before = stack.gateway._current()
        under_way = asyncio.create_task(stack.call(chat(stream=True)))
        await asyncio.wait_for(stack.small.got_request.wait(), 2)

        text = policy_text(tmp_path, permits=3).replace("candidates: [small, large]", "candidates: [large]")
        (tmp_path / "policy.yaml").write_text(text)
        begun = time.monotonic()
        while stack.gateway._current() is before:
            await asyncio.sleep(0.01)
            assert time.monotonic() - begun < 1
        after = stack.gateway._current()

        assert (await stack.call(chat())).headers["x-penstock-deployment"] == "large"
        gate.set()
        reply = await under_way
        assert reply.headers["x-penstock-policy"] == before.revision
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert after.deployments["small"] is before.deployments["small"]
        assert after.deployments["small"].limiter.limit == 3


async def test_a_deployment_that_moved_gets_a_new_client_and_the_old_one_closes_when_idle(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        gate = asyncio.Event()
        stack.small.scripts = [until(gate)]  # type: ignore[list-item]
        old = stack.gateway._current().deployments["small"]
        under_way = asyncio.create_task(stack.call(chat(stream=True)))
        await asyncio.wait_for(stack.small.got_request.wait(), 2)

        moved = policy_text(tmp_path).replace("small.sock", "large.sock")
        (tmp_path / "policy.yaml").write_text(moved)
        while stack.gateway._current().deployments["small"] is old:
            await asyncio.sleep(0.01)
        gate.set()

        assert (await under_way).body.endswith(b"data: [DONE]\n\n")
        while old.client.snapshot().num_idle:
            await asyncio.sleep(0.01)
        assert stack.gateway._current().deployments["small"].is_ready


async def test_a_bad_policy_changes_nothing_and_is_reported(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        before = stack.gateway._current()
        (tmp_path / "policy.yaml").write_text("schema_version: 1\nnonsense: true\n")
        while not stack.lines("policy_refused"):
            await asyncio.sleep(0.01)

        assert stack.gateway._current() is before
        assert (await stack.call(chat())).status == 200
        metrics = (await stack.get("/metrics", admin=True)).body.decode()
        assert "penstock_policy_reload_success 0.0" in metrics
        assert f'penstock_policy_info{{revision="{before.revision}"}} 1.0' in metrics
