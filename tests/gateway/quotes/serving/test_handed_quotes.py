"""A reserved permit goes from the process that gave the quote to the one that has the request, or is free again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.app.connections.upstream_clients import open_upstream
from gateway.http.asgi import Receive, Scope, Send, respond
from gateway.http.server import Listener, Server
from gateway.limits.limiter import Limiter
from gateway.limits.permit import AdmissionRequest
from gateway.quotes.reserved_permit import ReservedPermit
from gateway.quotes.serving.handed_quotes import (
    HandedPermit,
    HandedQuotesApplication,
    QuoteOrder,
    QuotesElsewhere,
    holder_of,
)
from gateway.quotes.serving.open_quotes import OpenQuote, OpenQuotes
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from routing_policies.decision import Decision
from tests.gateway.machine.test_shared_limiter import Machine, machine

GIVER, TAKER = 1, 2
HOLDER = holder_of("life", GIVER)
ORDER = QuoteOrder("quote_1", "p1", "main")


async def other(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, 418, [], b"")


class Live:
    """A deployment, as a reservation sees it."""

    id = "a"
    is_ready = True
    health = SimpleNamespace(is_fit=True)

    def __init__(self, limiter: Limiter) -> None:
        self.limiter = limiter


@dataclass
class Pair:
    """Two processes: one has the open quotes, the other fetches them."""

    machine: Machine
    quotes: OpenQuotes
    elsewhere: QuotesElsewhere
    lives: dict[int, Any]

    def reserve(self, **fields: Any) -> None:
        """Give the quote of `ORDER` at the giving process."""
        admission_request = AdmissionRequest(self.machine.lanes[GIVER], "ant", 7, service_s=0.5, first_token_s=0.25)
        quote = OpenQuote(
            **{
                "id": ORDER.id,
                "tenant": "ant",
                "policy": ORDER.policy,
                "route": ORDER.route,
                "admission_request": admission_request,
                "request": None,
                "avoid": frozenset({"slow"}),
                "stand_in": None,
                "routing_request": None,
                "degraded": ("max_tokens",),
                "trimmed": (("minify", 3),),
                "reserved": ReservedPermit(
                    self.lives[GIVER], Decision("a", "least_in_flight", {}, cause="sticky"), admission_request
                ),
                "expires_at": time.monotonic() + 30.0,
                **fields,
            }
        )
        self.quotes.add(quote)

    async def fetch(self, order: QuoteOrder = ORDER, holder: str = HOLDER) -> HandedPermit | None:
        """Fetch the quote from the other process."""
        found = await self.elsewhere.fetch(holder, order)
        if found is None:
            return None
        form, answer = found
        assert (form.lane, form.avoid, form.degraded, form.trimmed) == (
            *("batch", ("slow",)),
            *(("max_tokens",), (("minify", 3),)),
        )
        wanted = form.admission_request(self.machine.lanes[TAKER], "ant")
        assert (wanted.tokens, wanted.service_s, wanted.first_token_s) == (7, 0.5, 0.25)
        assert (form.decision.deployment, form.decision.policy, form.decision.cause) == (
            *("a", "least_in_flight"),
            "sticky",
        )
        return HandedPermit(self.lives[TAKER], form.decision, wanted, answer)

    @property
    def held(self) -> tuple[int, int]:
        """Permits that the two processes count."""
        return self.machine.limiters[GIVER].own_in_flight, self.machine.limiters[TAKER].own_in_flight

    async def until(self, held: tuple[int, int]) -> None:
        async with asyncio.timeout(5.0):
            while self.held != held:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def pair(folder: Path, limit: int = 2) -> AsyncIterator[Pair]:
    path = folder / "w1.sock"
    with machine(limit) as found:
        quotes = OpenQuotes(time.monotonic)
        application = HandedQuotesApplication(quotes, other, clock=time.monotonic)
        server = Server(
            [Listener(name="reports", address=f"unix:{path}", app=application)], new_request_id=lambda: "id"
        )
        await server.start()
        client = open_upstream(Target.parse(f"unix:{path}"), limits=PoolLimits())
        elsewhere = QuotesElsewhere({GIVER: client})
        lives = {column: Live(found.limiters[column]) for column in (GIVER, TAKER)}
        try:
            yield Pair(found, quotes, elsewhere, lives)
        finally:
            quotes.close()
            await elsewhere.aclose()
            await server.close()
            for limiter in found.limiters:
                assert limiter.own_in_flight == 0
                limiter.check_integrity()


async def test_a_permit_goes_over_and_nobody_else_gets_it(tmp_path: Path) -> None:
    async with pair(tmp_path, limit=1) as two:
        two.reserve()
        reserved = await two.fetch()
        assert reserved is not None
        assert reserved.is_fit
        waiting = asyncio.create_task(two.machine.acquire(GIVER))
        permit = await reserved.take(time.monotonic)
        assert permit is not None
        await two.until((0, 1))
        assert not waiting.done()
        reserved.release()
        assert two.held == (0, 1), "what was taken belongs to the request"
        assert await reserved.take(time.monotonic) is None
        permit.release()
        (await asyncio.wait_for(waiting, 5.0)).release()


async def test_a_permit_that_is_not_wanted_returns(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        two.reserve()
        reserved = await two.fetch()
        assert reserved is not None
        assert two.held == (1, 0)
        reserved.release()
        await two.until((0, 0))
        assert await reserved.take(time.monotonic) is None


async def test_a_place_in_the_queue_goes_over_once_it_is_granted(tmp_path: Path) -> None:
    async with pair(tmp_path, limit=1) as two:
        busy = await two.machine.acquire(0)
        two.reserve()
        reserved = await two.fetch()
        assert reserved is not None
        taking = asyncio.create_task(reserved.take(time.monotonic))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(taking), 0.02)
        busy.release()
        permit = await asyncio.wait_for(taking, 5.0)
        assert permit is not None
        await two.until((0, 1))
        permit.release()


@pytest.mark.parametrize("ends_by", ["time", "cancel"])
async def test_a_request_that_waits_no_longer_leaves_the_queue(ends_by: str, tmp_path: Path) -> None:
    async with pair(tmp_path, limit=1) as two:
        busy = await two.machine.acquire(0)
        two.reserve()
        reserved = await two.fetch()
        assert reserved is not None
        if ends_by == "time":
            assert await reserved.take(time.monotonic, time.monotonic() + 0.01) is None
        else:
            taking = asyncio.create_task(reserved.take(time.monotonic))
            await asyncio.sleep(0)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
        async with asyncio.timeout(5.0):
            while two.machine.limiters[GIVER].own_waiting:
                await asyncio.sleep(0.001)
        busy.release()


async def test_what_nobody_holds_is_not_found_and_another_revision_lets_the_permit_go(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        assert await two.fetch() is None
        two.reserve()
        assert await two.fetch(holder="life") is None, "the only process of another gateway"
        assert await two.fetch(holder=holder_of("life", 7)) is None
        assert two.held == (1, 0)
        assert await two.fetch(QuoteOrder(ORDER.id, "p2", ORDER.route)) is None
        await two.until((0, 0))
        assert await two.fetch() is None


async def test_only_one_of_many_requests_at_once_gets_the_permit(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        two.reserve()
        found = [one for one in await asyncio.gather(*(two.fetch() for _ in range(8))) if one is not None]
        assert len(found) == 1
        found[0].release()
        await two.until((0, 0))


async def test_a_process_that_ended_has_no_quotes_and_other_paths_are_others(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        gone = QuotesElsewhere({GIVER: open_upstream(Target.parse(f"unix:{tmp_path}/gone.sock"), limits=PoolLimits())})
        assert await gone.fetch(HOLDER, ORDER) is None
        await gone.aclose()
        reader, writer = await asyncio.open_unix_connection(tmp_path / "w1.sock")
        writer.write(b"GET /report HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 418")
        writer.close()
        assert two.held == (0, 0)
