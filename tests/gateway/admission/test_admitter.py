"""Lanes, targets and priorities as clients see them, over real sockets."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from tests.gateway.stack import chat, policy_text, running

KEY = "psk-admitter"


async def metric(stack: object, line: str) -> str:
    reply = await stack.get("/metrics", admin=True)  # type: ignore[attr-defined]
    return next((text for text in reply.body.decode().splitlines() if text.startswith(line)), "")


@pytest.mark.parametrize("value", ["-1", "0", "1e12", "text", "1000000000000"])
async def test_a_bad_target_is_ignored_and_counted(tmp_path: Path, value: str) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(chat(), headers={"x-slo-ttft-ms": value})

        assert reply.status == 200
        line = await metric(stack, 'penstock_ignored_headers_total{header="x-slo-ttft-ms"}')
        assert line.endswith(" 1.0")


async def test_an_unknown_priority_is_ignored_and_counted(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(chat(), headers={"x-penstock-priority": "root"})

        assert reply.status == 200
        assert stack.lines()[-1]["lane"] == "interactive"
        line = await metric(stack, 'penstock_ignored_headers_total{header="x-penstock-priority"}')
        assert line.endswith(" 1.0")


async def test_a_lane_above_what_the_key_may_use_is_demoted_and_counted(tmp_path: Path) -> None:
    """Bad input row 44."""
    tenant = f'tenants: [{{id: t, lanes: [batch], keys: [{{id: k, sha256: "{sha256(KEY.encode()).hexdigest()}"}}]}}]\n'
    async with running(tmp_path, policy=policy_text(tmp_path) + tenant) as stack:
        headers = {"authorization": f"Bearer {KEY}", "x-penstock-priority": "interactive"}
        reply = await stack.call(chat(), headers=headers)

        assert reply.status == 200
        assert stack.lines()[-1]["lane"] == "batch"
        line = await metric(stack, 'penstock_ignored_headers_total{header="x-penstock-priority"}')
        assert line.endswith(" 1.0")


async def test_an_engine_gets_only_the_priorities_it_knows(tmp_path: Path) -> None:
    text = policy_text(tmp_path).replace("{id: batch,", "{id: bulk, priority: batch,")
    async with running(tmp_path, policy=text) as stack:
        await stack.call(chat(), headers={"x-penstock-priority": "bulk"})
        await stack.call(chat())

        heard = [call.headers["x-penstock-priority"] for call in stack.small.received]
        assert heard == ["batch", "interactive"]


async def test_a_tenant_header_of_a_caller_means_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(chat(), headers={"x-penstock-tenant": "somebody-else", "x-tenant": "admin"})

        assert reply.status == 200
        assert stack.lines()[-1]["tenant"] == "dev"


async def test_a_target_of_nothing_is_refused_at_once_with_what_would_do(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        for _ in range(3):
            await stack.call(chat(stream=True))
        reply = await stack.call(chat(stream=True), headers={"x-slo-ttft-ms": "0.001"})

        assert reply.status == 503
        assert reply.headers["x-penstock-shed-reason"] == "slo_unreachable"
        assert reply.headers["x-should-retry"] == "false"
        assert "x-slo-ttft-ms" in reply.error["degraded"]["hint"]
        assert len(stack.small.received) == 3
