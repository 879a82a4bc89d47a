"""Quotes over real sockets: what is stated, what is reserved, and what becomes of it."""

from __future__ import annotations

import asyncio
import gc
import json
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from gateway.chat.request import ChatRequest
from gateway.cli.explain import render_request
from gateway.quotes.serving.quoter import Quoter
from tests.gateway.scripted import Wire, chunk, complete
from tests.gateway.stack import Reply, Stack, chat, encode, policy_text, running

QUOTE = "/v1/quote"
STREAM = chat(stream=True, max_tokens=64)


def with_quotes(folder: Path, rules: str = "hold_ms: 20000", more: str = "", **values: Any) -> str:
    return f"{policy_text(folder, **values)}quotes: {{{rules}}}\n{more}"


def tenants(**limits: str) -> str:
    lines = ["tenants:"]
    for name, limit in limits.items():
        digest = sha256(f"sk-{name}".encode()).hexdigest()
        lines.append(f'  - {{id: {name}, keys: [{{id: k, sha256: "{digest}"}}], limits: {limit}}}')
    return "\n".join(lines) + "\n"


def key(tenant: str) -> dict[str, str]:
    return {"authorization": f"Bearer sk-{tenant}"}


async def quoted(stack: Stack, body: Any = None, *, query: str = "?coverage=0.5", **how: Any) -> dict[str, Any]:
    reply = await stack.call(STREAM if body is None else body, path=QUOTE + query, **how)
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json
    return found


async def redeemed(
    stack: Stack, quote: dict[str, Any], body: Any = None, headers: dict[str, str] | None = None
) -> Reply:
    given = {"x-penstock-quote": quote["quote"], **(headers or {})}
    return await stack.call(STREAM if body is None else body, headers=given)


async def calibrated(stack: Stack, num: int = 3, **how: Any) -> None:
    """Let the deployment answer some streams, so that bounds can be stated."""
    for _ in range(num):
        assert (await stack.call(STREAM, **how)).status == 200


def expected_result(line: dict[str, Any]) -> str:
    return "met" if line["ttft_ms"] <= line["quote"]["bound_ms"] else "missed"


def in_flight(stack: Stack) -> int:
    assert stack.gateway.snapshot is not None
    return stack.gateway.snapshot.deployments["small"].in_flight


async def until_free(stack: Stack) -> None:
    for _ in range(400):
        if in_flight(stack) == 0:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("a quote holds its permit")


async def test_a_policy_without_quotes_has_none(tmp_path: Path) -> None:
    async with running(tmp_path) as stack:
        reply = await stack.call(STREAM, path=QUOTE)
        assert (reply.status, reply.error["code"]) == (404, "not_found")
        assert "`quotes`" in reply.error["message"]
        plain = await stack.call(STREAM, headers={"x-penstock-quote": "anything"})
        assert (plain.status, "x-penstock-quote" in plain.headers) == (200, False)
        assert stack.gateway.snapshot is not None
        assert stack.gateway.snapshot.deployments["small"].ttft_bounds is None


async def test_a_quote_reserves_and_its_request_gets_the_permit(tmp_path: Path) -> None:
    async with running(tmp_path, policy=with_quotes(tmp_path)) as stack:
        await calibrated(stack)
        quote = await quoted(stack)
        assert (quote["admitted"], quote["reserved"], quote["deployment"]) == (True, True, "small")
        assert (quote["model"], quote["route"], quote["degradation"]) == ("auto", "main", None)
        assert quote["coverage"] == 0.5
        assert 0.0 < quote["ttft_ms"] < 5000.0
        assert quote["forecast_ms"] > 0.0
        assert (quote["would_queue_ms"], quote["expires_in_s"], quote["price"]) == (0.0, 20.0, None)
        assert in_flight(stack) == 1
        assert len(stack.small.received) == 3, "nothing is generated for a quote"

        reply = await redeemed(stack, quote)
        assert (reply.status, reply.headers["x-penstock-quote"]) == (200, "redeemed")
        assert reply.headers["x-penstock-deployment"] == "small"
        await until_free(stack)
        line = stack.lines()[-1]
        assert line["quote"]["use"] == "redeemed"
        assert line["quote"]["bound_ms"] == pytest.approx(quote["ttft_ms"], abs=0.01)
        expected = expected_result(line)
        assert line["quote"]["result"] == expected
        assert await stack.metric("penstock_quoted_bounds_total", kind="first_token", result=expected) == 1
        assert await stack.metric("penstock_quotes_total", event="reserved") == 1
        assert await stack.metric("penstock_quote_uses_total", use="redeemed") == 1


async def test_a_quote_that_is_not_sent_back_expires(tmp_path: Path) -> None:
    async with running(tmp_path, policy=with_quotes(tmp_path, "hold_ms: 100")) as stack:
        await calibrated(stack)
        quote = await quoted(stack)
        await until_free(stack)
        assert await stack.metric("penstock_quotes_total", event="lapsed") == 1
        assert await stack.metric("penstock_quotes_held") == 0
        await asyncio.sleep(0.1)  # the token's end is by the clock on the wall
        reply = await redeemed(stack, quote)
        assert (reply.status, reply.headers["x-penstock-quote"]) == (200, "expired")
        assert stack.lines()[-1]["quote"] == {
            "use": "expired",
            **dict.fromkeys(("bound_ms", "coverage", "result", "price", "price_result")),
        }


async def test_a_quote_is_for_one_body_and_for_one_use(tmp_path: Path) -> None:
    async with running(tmp_path, policy=with_quotes(tmp_path)) as stack:
        await calibrated(stack)
        quote = await quoted(stack)
        other = await redeemed(stack, quote, chat(stream=True, max_tokens=65))
        assert (other.status, other.headers["x-penstock-quote"]) == (200, "other-body")
        assert in_flight(stack) == 1, "the permit waits for its own request"
        assert (await redeemed(stack, quote)).headers["x-penstock-quote"] == "redeemed"
        again = await redeemed(stack, quote)
        assert (again.status, again.headers["x-penstock-quote"]) == (200, "used")
        assert await stack.metric("penstock_quoted_bounds_total") == 1


@pytest.mark.parametrize("token", ["", "nonsense", "a.b", "x" * 4000, "YQ.YQ", "é"])
async def test_a_token_that_no_gateway_signed_is_invalid_and_harmless(tmp_path: Path, token: str) -> None:
    async with running(tmp_path, policy=with_quotes(tmp_path)) as stack:
        reply = await stack.call(STREAM, headers={"x-penstock-quote": token})
        assert (reply.status, reply.headers["x-penstock-quote"]) == (200, "invalid")


async def test_another_tenants_token_is_invalid(tmp_path: Path) -> None:
    policy = with_quotes(tmp_path, more=tenants(shop="{}", rival="{}"))
    async with running(tmp_path, policy=policy) as stack:
        await calibrated(stack, headers=key("shop"))
        quote = await quoted(stack, headers=key("shop"))
        stolen = await redeemed(stack, quote, headers=key("rival"))
        assert (stolen.status, stolen.headers["x-penstock-quote"]) == (200, "invalid")
        assert in_flight(stack) == 1
        assert (await redeemed(stack, quote, headers=key("shop"))).headers["x-penstock-quote"] == "redeemed"


async def test_wrong_requests_get_the_errors_of_chat_completions(tmp_path: Path) -> None:
    policy = with_quotes(tmp_path, more=tenants(shop="{}"))
    async with running(tmp_path, policy=policy) as stack:
        for body in (b"{", {"model": "auto"}, chat("nothing"), chat(temperature="hot"), b"[1]"):
            mine = await stack.call(body, path=QUOTE, headers=key("shop"))
            theirs = await stack.call(body, headers=key("shop"))
            assert mine.status == theirs.status >= 400
            assert mine.error == theirs.error
        assert (await stack.call(STREAM, path=QUOTE, headers=key("nobody"))).status == 401
        assert (await stack.call(None, path=QUOTE, method="GET", headers=key("shop"))).status == 405
        for wrong in ("2", "0.2", "nan", "", "95%", "-1"):
            reply = await stack.call(STREAM, path=f"{QUOTE}?coverage={wrong}", headers=key("shop"))
            assert (reply.status, reply.error["param"]) == (400, "coverage"), wrong
        assert await stack.metric("penstock_quotes_total") == 0
        assert in_flight(stack) == 0


async def test_without_enough_answers_no_bound_is_stated(tmp_path: Path) -> None:
    async with running(tmp_path, policy=with_quotes(tmp_path)) as stack:
        await calibrated(stack)
        quote = await quoted(stack, query="")
        assert (quote["coverage"], quote["ttft_ms"], quote["reserved"]) == (0.95, None, True)
        reply = await redeemed(stack, quote)
        assert reply.headers["x-penstock-quote"] == "redeemed"
        assert stack.lines()[-1]["quote"]["result"] is None
        assert await stack.metric("penstock_quoted_bounds_total") == 0
        await calibrated(stack, 15)
        assert (await quoted(stack, query=""))["ttft_ms"] is not None
        await redeemed(stack, await quoted(stack, query=""))
        stack.gateway._path.open_quotes.close()


async def test_a_tenants_quotes_hold_few_permits(tmp_path: Path) -> None:
    policy = with_quotes(tmp_path, "hold_ms: 20000, max_held: 2", tenants(shop="{}", other="{}"), permits=40)
    async with running(tmp_path, policy=policy) as stack:
        await calibrated(stack, headers=key("shop"))
        found = [await quoted(stack, headers=key("shop")) for _ in range(4)]
        assert [quote["reserved"] for quote in found] == [True, True, False, False]
        assert (await quoted(stack, headers=key("other")))["reserved"]
        assert in_flight(stack) == 3
        reply = await redeemed(stack, found[3], headers=key("shop"))
        assert reply.headers["x-penstock-quote"] == "unreserved", "its bound counts all the same"
        assert stack.lines()[-1]["quote"]["result"] in ("met", "missed")
        stack.gateway._path.open_quotes.close()


async def test_quotes_use_no_quota_and_see_that_none_is_left(tmp_path: Path) -> None:
    policy = with_quotes(tmp_path, more=tenants(shop="{requests_per_min: 2}"))
    async with running(tmp_path, policy=policy) as stack:
        for _ in range(5):
            await quoted(stack, headers=key("shop"))
        stack.gateway._path.open_quotes.close()
        assert [(await stack.call(STREAM, headers=key("shop"))).status for _ in range(3)] == [200, 200, 429]
        reply = await stack.call(STREAM, path=QUOTE, headers=key("shop"))
        assert (reply.status, reply.error["code"]) == (429, "rate_limit_exceeded")


async def test_a_request_that_would_be_refused_for_load_is_quoted_as_such(tmp_path: Path) -> None:
    async with running(tmp_path, policy=with_quotes(tmp_path)) as stack:
        for live in stack._live():
            live.is_ready = False
        quote = await quoted(stack)
        refused = await stack.call(STREAM)
        assert refused.status == 503
        assert (quote["admitted"], quote["reason"]) == (False, refused.headers["x-penstock-shed-reason"])
        assert quote["message"] == refused.error["message"]
        assert quote["retry_after_s"] >= 1.0
        assert await stack.metric("penstock_quotes_total", event="refused") == 1


async def test_a_full_deployment_holds_a_place_in_its_queue(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def slow(wire: Wire) -> None:
        await release.wait()
        await complete(wire)

    async with running(tmp_path, policy=with_quotes(tmp_path, permits=4)) as stack:
        await calibrated(stack)
        stack.small.scripts = [slow] * 4
        under_way = [asyncio.create_task(stack.call(chat("solo", stream=True))) for _ in range(4)]
        while in_flight(stack) < 4:
            await asyncio.sleep(0.005)
        body = chat("solo", stream=True, max_tokens=8)
        quote = await quoted(stack, body)
        assert quote["reserved"]
        assert quote["would_queue_ms"] > 0.0
        assert stack._live()[0].limiter.num_waiting == 1
        waiting = asyncio.create_task(redeemed(stack, quote, body))
        release.set()
        assert (await waiting).headers["x-penstock-quote"] == "redeemed"
        assert [reply.status for reply in await asyncio.gather(*under_way)] == [200] * 4


async def test_a_missed_bound_is_counted_and_explained(tmp_path: Path) -> None:
    async def slow(wire: Wire) -> None:
        await asyncio.sleep(0.5)
        await complete(wire)

    async with running(tmp_path, policy=with_quotes(tmp_path)) as stack:
        await calibrated(stack, 5)
        quote = await quoted(stack)
        assert quote["ttft_ms"] < 500.0
        stack.small.scripts = [slow]
        reply = await redeemed(stack, quote)
        assert stack.lines()[-1]["quote"]["result"] == "missed"
        assert await stack.metric("penstock_quoted_bounds_total", kind="first_token", result="missed") == 1
        found = await stack.get(f"/admin/api/requests/{reply.headers['x-request-id']}", admin=True)
        assert found.json["request"]["quote"]["result"] == "missed"
        assert "missed the quoted bound" in found.json["request"]["why"]
        assert "quote redeemed: first token within" in render_request(found.json["request"])


async def test_a_deployment_that_fails_misses_the_bound(tmp_path: Path) -> None:
    async def broken(wire: Wire) -> None:
        await wire.answer(b'{"error": {"message": "no"}}', status=500)

    async with running(tmp_path, policy=with_quotes(tmp_path)) as stack:
        await calibrated(stack)
        body = chat("solo", stream=True)
        quote = await quoted(stack, body)
        stack.small.scripts = [broken] * 2
        reply = await redeemed(stack, quote, body)
        assert reply.status >= 500
        assert reply.headers["x-penstock-quote"] == "redeemed"
        assert stack.lines()[-1]["quote"]["result"] == "missed"


async def test_the_price_is_an_upper_bound(tmp_path: Path) -> None:
    policy = f"""
schema_version: 1
deployments:
  - {{id: small, url: "unix:{tmp_path}/small.sock", model: tiny, cost_per_mtok: {{prompt: 1000, completion: 10000}}}}
  - {{id: large, url: "unix:{tmp_path}/large.sock", model: big}}
quotes: {{hold_ms: 20000}}
"""
    async with running(tmp_path, policy=policy) as stack:
        body = chat("tiny", stream=True, max_tokens=64, n=2, stream_options={"include_usage": True})
        await stack.call(body)
        quote = await quoted(stack, body)
        price = quote["price"]
        assert price["max_completion_tokens"] == 128
        assert price["prompt_tokens"] >= 7, "the scripted deployment reports so many"
        assert price["amount"] == pytest.approx((price["prompt_tokens"] * 1000 + 128 * 10000) / 1e6)
        await redeemed(stack, quote, body)
        assert stack.lines()[-1]["quote"]["price_result"] == "met"
        assert await stack.metric("penstock_quoted_bounds_total", kind="price", result="met") == 1
        assert (await quoted(stack, chat("tiny", stream=True)))["price"] is None, "nothing bounds the answer"
        stack.gateway._path.open_quotes.close()


async def test_a_degraded_form_is_quoted_and_then_served(tmp_path: Path) -> None:
    rules = "slo: {ttft_p95_ms: 1}, on_overload: [max_tokens], degraded_max_tokens: 8"
    lanes = f"lanes: [{{id: interactive, weight: 8, {rules}}}]"
    policy = policy_text(tmp_path).split("lanes:")
    routes = policy[1][policy[1].index("routes:") :]
    text = f"{policy[0]}{lanes}\n{routes}quotes: {{hold_ms: 20000}}\n"
    async with running(tmp_path, policy=text) as stack:
        quote = await quoted(stack)
        assert quote["degradation"] == "max-tokens"
        reply = await redeemed(stack, quote)
        assert (reply.status, reply.headers["x-penstock-degraded"]) == (200, "max-tokens")
        assert json.loads(stack.small.received[-1].body)["max_tokens"] == 8


async def test_a_cached_response_meets_the_bound_and_returns_the_permit(tmp_path: Path) -> None:
    text = policy_text(tmp_path).replace("match: {models: [auto]}", "match: {models: [auto]}\n    cache: {mode: exact}")
    async with running(tmp_path, policy=text + "quotes: {hold_ms: 20000}\n") as stack:
        await calibrated(stack)
        num_sent = len(stack.small.received)
        quote = await quoted(stack)
        reply = await redeemed(stack, quote)
        assert (reply.headers["x-penstock-cache"], reply.headers["x-penstock-quote"]) == ("hit-exact", "redeemed")
        assert len(stack.small.received) == num_sent
        await until_free(stack)
        line = stack.lines()[-1]
        assert line["quote"]["result"] == expected_result(line)


async def test_another_process_honours_the_bound_without_the_permit(tmp_path: Path) -> None:
    async with AsyncExitStack() as stacks:
        both = []
        for name in ("a", "b"):
            folder = tmp_path / name
            folder.mkdir()
            settings = {"store.address": f"embedded:{tmp_path}/store.db"}
            both.append(
                await stacks.enter_async_context(running(folder, policy=with_quotes(folder), settings=settings))
            )
        here, there = both
        await calibrated(here)
        quote = await quoted(here)
        reply = await redeemed(there, quote)
        assert (reply.status, reply.headers["x-penstock-quote"]) == (200, "unreserved")
        assert there.lines()[-1]["quote"]["result"] in ("met", "missed")
        for stack in both:
            assert (await redeemed(stack, quote)).headers["x-penstock-quote"] == "used"
        assert in_flight(here) == 1, "it returns when the quote expires"
        here.gateway._path.open_quotes.close()


async def test_a_client_that_leaves_ends_its_quote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, is_cancelled = asyncio.Event(), asyncio.Event()

    async def slow(*_: Any) -> None:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()

    async with running(tmp_path, policy=with_quotes(tmp_path)) as stack:
        monkeypatch.setattr(Quoter, "quote", slow)
        _, writer = await stack.connect()
        writer.write(encode(STREAM, path=QUOTE))
        async with asyncio.timeout(10):
            await has_begun.wait()
            writer.close()
            await is_cancelled.wait()


async def test_a_new_policy_revision_returns_the_permit(tmp_path: Path) -> None:
    async with running(tmp_path, policy=with_quotes(tmp_path)) as stack:
        await calibrated(stack)
        quote = await quoted(stack)
        before = stack.gateway.snapshot
        (tmp_path / "policy.yaml").write_text(with_quotes(tmp_path, "hold_ms: 10000"))
        while stack.gateway.snapshot is before:
            await asyncio.sleep(0.01)
        reply = await redeemed(stack, quote)
        assert reply.headers["x-penstock-quote"] == "unreserved"
        await until_free(stack)


async def test_a_client_that_leaves_before_the_bound_leaves_it_open(tmp_path: Path) -> None:
    async def silent(wire: Wire) -> None:
        await wire.is_gone.wait()

    async with running(tmp_path, policy=with_quotes(tmp_path)) as stack:
        stack.small.scripts = [_after(0.3), silent]
        await stack.call(STREAM)
        quote = await quoted(stack)
        assert quote["ttft_ms"] > 20.0
        _, writer = await stack.connect()
        writer.write(encode(STREAM, headers={"x-penstock-quote": quote["quote"]}))
        while len(stack.small.received) < 2:
            await asyncio.sleep(0.002)
        writer.close()
        for _ in range(400):
            if len(stack.lines()) == 2:
                break
            await asyncio.sleep(0.005)
        line = stack.lines()[-1]
        assert line["outcome"] == "cancelled"
        assert line["quote"]["result"] == ("unknown" if line["total_ms"] <= line["quote"]["bound_ms"] else "missed")


def _after(seconds: float) -> Any:
    async def script(wire: Wire) -> None:
        await asyncio.sleep(seconds)
        await wire.start_stream()
        await wire.event(chunk("hi"))
        await wire.event(chunk(finish="stop"))
        await wire.event(b"[DONE]")
        await wire.end()

    return script


async def test_a_query_with_too_many_fields_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, policy=with_quotes(tmp_path)) as stack:
        reply = await stack.call(STREAM, path=f"{QUOTE}?{'&'.join(['a=1'] * 17)}")
        assert (reply.status, reply.error["param"]) == (400, "coverage")


async def test_a_held_quote_keeps_no_body(tmp_path: Path) -> None:
    async with running(tmp_path, policy=with_quotes(tmp_path)) as stack:
        body = chat(stream=True, user="a body of its own")
        quote = await quoted(stack, body)
        assert quote["reserved"]
        gc.collect()
        held = [one for one in gc.get_objects() if type(one) is ChatRequest and b"of its own" in one.raw]
        assert not held, "bodies count for the memory of requests only while those are served"
        assert (await redeemed(stack, quote, body)).headers["x-penstock-quote"] == "redeemed"
