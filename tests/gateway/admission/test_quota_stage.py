"""Tenants' limits on the way of a request: headers, refusals, what is charged and what is given back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.gateway.quota_policy import key_of, quota_policy
from tests.gateway.scripted import Wire, chunk, hang
from tests.gateway.stack import Stack, chat, encode, running

LIMITS = {
    "rated": "{requests_per_min: 3, tokens_per_min: 100000}",
    "tight": "{tokens_per_min: 50}",
    "narrow": "{max_in_flight: 1}",
    "poor": "{budget: {cost_per_month: 0.0002}}",
    "thrifty": "{budget: {tokens_per_day: 40}}",
    "free": "{}",
}


@pytest.fixture
def policy(tmp_path: Path) -> str:
    return quota_policy(tmp_path, LIMITS)


def used(stack: Stack, tenant: str, name: str) -> int:
    """Units of one limit that this gateway has drawn and not given back or stored for later."""
    quota = stack.gateway._quotas.by_tenant.get(tenant)
    assert quota is not None
    (part,) = [part for part in quota.slices if part.meter.name == name]
    return part.meter.limit - part.remaining - part.left - sum(part.owed.values())


async def test_headers_state_what_is_left_and_a_refusal_when_to_come_back(tmp_path: Path, policy: str) -> None:
    async with running(tmp_path, policy=policy) as stack:
        replies = [await stack.call(chat(), headers=key_of("rated")) for _ in range(4)]

        assert [reply.status for reply in replies] == [200, 200, 200, 429]
        assert [reply.headers["x-ratelimit-remaining-requests"] for reply in replies] == ["2", "1", "0", "0"]
        for reply in replies:
            assert reply.headers["x-ratelimit-limit-requests"] == "3"
            assert reply.headers["x-ratelimit-limit-tokens"] == "100000"
            assert int(reply.headers["x-ratelimit-remaining-tokens"]) > 90_000
            assert reply.headers["x-ratelimit-reset-requests"].endswith("s")
        refused = replies[3]
        assert refused.error["type"] == "rate_limit_error"
        assert refused.error["code"] == refused.headers["x-penstock-error-code"] == "rate_limit_exceeded"
        assert 50 <= int(refused.headers["retry-after"]) <= 60
        assert refused.headers["x-should-retry"] == "true"
        assert "3 requests a minute" in refused.error["message"]
        metrics = (await stack.get("/metrics", admin=True)).body.decode()
        assert 'penstock_quota_refused_total{limit="requests_per_min",tenant="rated"} 1.0' in metrics
        assert stack.lines()[-1]["outcome"] == "rejected"


async def test_a_stream_has_the_headers_too_and_a_tenant_without_limits_has_none(tmp_path: Path, policy: str) -> None:
    async with running(tmp_path, policy=policy) as stack:
        stream = await stack.call(chat(stream=True), headers=key_of("rated"))
        free = await stack.call(chat(), headers=key_of("free"))

        assert stream.headers["x-ratelimit-remaining-requests"] == "2"
        assert not [name for name in free.headers if name.startswith("x-ratelimit")]


async def test_tokens_are_charged_as_the_engine_counted_them(tmp_path: Path, policy: str) -> None:
    async with running(tmp_path, policy=policy) as stack:
        for _ in range(3):
            assert (await stack.call(chat(), headers=key_of("rated"))).status == 200
        assert used(stack, "rated", "tokens_per_min") == 30


async def test_a_forecast_alone_does_not_lock_out_a_small_tenant(tmp_path: Path, policy: str) -> None:
    async with running(tmp_path, policy=policy) as stack:
        assert (await stack.call(chat(max_tokens=5000), headers=key_of("tight"))).status == 200
        long = chat()
        long["messages"][0]["content"] = "many words " * 100
        refused = await stack.call(long, headers=key_of("tight"))
        assert refused.status == 429
        assert refused.headers["x-should-retry"] == "false"
        assert "Shorten it" in refused.error["message"]


async def test_a_request_over_the_concurrent_limit_is_refused_until_one_ends(tmp_path: Path, policy: str) -> None:
    async with running(tmp_path, policy=policy) as stack:
        release = asyncio.Event()

        async def slow(wire: Wire) -> None:
            await release.wait()
            await wire.answer(b'{"choices": []}')

        stack.small.scripts = [slow]
        first = asyncio.create_task(stack.call(chat(), headers=key_of("narrow")))
        await stack.small.got_request.wait()
        refused = await stack.call(chat(), headers=key_of("narrow"))
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert "under way" in refused.error["message"]
        release.set()
        assert (await first).status == 200
        assert (await stack.call(chat(), headers=key_of("narrow"))).status == 200


@pytest.mark.parametrize("tenant", ["poor", "thrifty"])
async def test_a_spent_budget_is_its_own_error(tmp_path: Path, policy: str, tenant: str) -> None:
    async with running(tmp_path, policy=policy) as stack:
        replies = [await stack.call(chat(max_tokens=3), headers=key_of(tenant)) for _ in range(6)]
        assert replies[0].status == 200
        refused = replies[-1]
        assert refused.status == 429
        assert refused.error["type"] == refused.error["code"] == "insufficient_quota"
        assert refused.headers["x-should-retry"] == "false"
        assert "retry-after" not in refused.headers


async def test_who_leaves_gives_its_place_back_and_pays_for_what_was_made(tmp_path: Path, policy: str) -> None:
    async with running(tmp_path, policy=policy) as stack:
        sent = asyncio.Event()

        async def endless(wire: Wire) -> None:
            await wire.start_stream()
            for _ in range(4):
                await wire.event(chunk("word "))
                await asyncio.sleep(0.005)
            sent.set()
            await hang(wire)

        stack.small.scripts = [endless]
        _, writer = await stack.connect()
        writer.write(encode(chat(stream=True, max_tokens=1000), headers=key_of("rated")))
        await sent.wait()
        await asyncio.sleep(0.05)
        writer.close()
        await stack.until_idle()
        async with asyncio.timeout(5):
            while not stack.lines():
                await asyncio.sleep(0.01)
        assert 4 <= used(stack, "rated", "tokens_per_min") < 60


async def test_a_request_that_was_not_served_costs_nothing(tmp_path: Path, policy: str) -> None:
    async with running(tmp_path, policy=quota_policy(tmp_path, LIMITS, permits=1, max_queue=0)) as stack:
        stack.small.otherwise = stack.large.otherwise = hang
        held = [asyncio.create_task(stack.call(chat(), headers=key_of("free"))) for _ in range(2)]
        await stack.small.got_request.wait()
        await stack.large.got_request.wait()
        shed = await stack.call(chat(), headers=key_of("rated"))
        assert shed.status == 503
        assert used(stack, "rated", "requests_per_min") == 0
        assert used(stack, "rated", "tokens_per_min") == 0
        assert shed.headers["x-ratelimit-remaining-requests"] == "2"
        await stack.small.close()
        await stack.large.close()
        assert {reply.status for reply in await asyncio.gather(*held)} <= {502, 503}


async def test_limits_change_with_the_policy_while_requests_run(tmp_path: Path, policy: str) -> None:
    async with running(tmp_path, policy=policy) as stack:
        for _ in range(3):
            await stack.call(chat(), headers=key_of("rated"))
        raised = quota_policy(tmp_path, {**LIMITS, "rated": "{requests_per_min: 5}"})
        (tmp_path / "policy.yaml").write_text(raised)
        async with asyncio.timeout(5):
            while len(stack.lines("policy_in_force")) < 2:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.06)
        replies = [await stack.call(chat(), headers=key_of("rated")) for _ in range(3)]
        assert [reply.status for reply in replies] == [200, 200, 429]
