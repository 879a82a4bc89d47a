from __future__ import annotations

import asyncio
import threading

import pytest

from gateway.app.connections.upstream_clients import open_upstream
from gateway.upstreams.http1.errors import ConnectTimeout, ResolveError
from gateway.upstreams.http1.request import ExchangeTimeouts
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import PoolLimits
from gateway.upstreams.resolver import Resolver, system_lookup
from tests.gateway.upstreams.conftest import FakeClock
from tests.gateway.upstreams.scripted import NO_TIMEOUTS, POST, ScriptedUpstream, answering, plain


class NameServer:
    """Answers, or fails, as scripted; counts how often it was called."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.is_up = True
        self.num_lookups = 0

    def __call__(self, host: str) -> list[str]:
        self.num_lookups += 1
        if not self.is_up:
            raise OSError("name server unreachable")
        return self.addresses


async def test_keeps_an_answer_until_its_time_is_over(clock: FakeClock) -> None:
    names = NameServer("10.0.0.1")
    resolver = Resolver(clock=clock, lookup=names, ttl_s=30.0)
    assert await resolver.resolve("engine") == ("10.0.0.1",)
    names.addresses = ["10.0.0.2"]
    clock.advance(29.0)
    assert await resolver.resolve("engine") == ("10.0.0.1",)
    clock.advance(1.0)
    assert await resolver.resolve("engine") == ("10.0.0.2",)
    assert names.num_lookups == 2
    resolver.close()


async def test_serves_the_last_answer_while_the_name_server_is_down_but_not_for_ever(clock: FakeClock) -> None:
    names = NameServer("10.0.0.1")
    resolver = Resolver(clock=clock, lookup=names, ttl_s=30.0, stale_s=300.0)
    await resolver.resolve("engine")
    names.is_up = False
    clock.advance(299.0)
    assert await resolver.resolve("engine") == ("10.0.0.1",)
    clock.advance(1.0)
    with pytest.raises(ResolveError, match="name server unreachable"):
        await resolver.resolve("engine")
    resolver.close()


async def test_serves_the_last_answer_while_the_name_server_is_silent(clock: FakeClock) -> None:
    may_answer = threading.Event()
    may_answer.set()
    answer = ["10.0.0.1"]

    def lookup(host: str) -> list[str]:
        assert may_answer.wait(30)
        return answer

    resolver = Resolver(clock=clock, lookup=lookup, ttl_s=30.0)
    await resolver.resolve("engine")
    may_answer.clear()
    clock.advance(31.0)
    assert await resolver.resolve("engine") == ("10.0.0.1",)
    async with asyncio.timeout(0):  # the lookup is under way, so nothing more waits for it
        assert await resolver.resolve("engine") == ("10.0.0.1",)
    answer = ["10.0.0.2"]
    pending = resolver._pending["engine"]
    may_answer.set()
    await pending
    assert await resolver.resolve("engine") == ("10.0.0.2",), "the answer counts that no request waited for"
    resolver.close()


async def test_calls_once_for_many_who_wait_and_one_may_be_cancelled(clock: FakeClock) -> None:
    may_answer = threading.Event()
    num_lookups = 0

    def lookup(host: str) -> list[str]:
        nonlocal num_lookups
        num_lookups += 1
        may_answer.wait(5)
        return ["10.0.0.1"]

    resolver = Resolver(clock=clock, lookup=lookup)
    waiting = [asyncio.ensure_future(resolver.resolve("engine")) for _ in range(5)]
    await asyncio.sleep(0.005)
    waiting[0].cancel()
    await asyncio.sleep(0)
    may_answer.set()
    assert await asyncio.gather(*waiting[1:]) == [("10.0.0.1",)] * 4
    assert waiting[0].cancelled()
    assert num_lookups == 1
    resolver.close()


async def test_addresses_need_no_lookup(clock: FakeClock) -> None:
    names = NameServer()
    resolver = Resolver(clock=clock, lookup=names)
    assert await resolver.resolve("127.0.0.1") == ("127.0.0.1",)
    assert await resolver.resolve("::1") == ("::1",)
    assert names.num_lookups == 0


async def test_no_address_is_an_error(clock: FakeClock) -> None:
    resolver = Resolver(clock=clock, lookup=NameServer())
    with pytest.raises(ResolveError, match="engine"):
        await resolver.resolve("engine")
    resolver.close()


def test_the_systems_own_answer_has_no_duplicates() -> None:
    addresses = system_lookup("localhost")
    assert addresses
    assert len(addresses) == len(set(addresses))


async def test_tries_the_next_address_when_one_refuses(clock: FakeClock) -> None:
    async with ScriptedUpstream(answering(plain(b"a")), None) as upstream:
        resolver = Resolver(clock=clock, lookup=NameServer("127.0.0.9", "127.0.0.1"))
        target = Target.parse(f"http://engine:{upstream.port}")
        client = open_upstream(target, limits=PoolLimits(), resolver=resolver)
        async with await client.send(POST, NO_TIMEOUTS) as response:
            assert await response.read(10) == b"a"
        await client.aclose()
        resolver.close()


async def test_a_hanging_name_server_is_bounded_by_the_connect_limit(clock: FakeClock) -> None:
    may_answer = threading.Event()

    def lookup(host: str) -> list[str]:
        may_answer.wait(5)
        return []

    resolver = Resolver(clock=clock, lookup=lookup)
    client = open_upstream(Target.parse("http://engine"), limits=PoolLimits(), resolver=resolver)
    with pytest.raises(ConnectTimeout):
        await client.send(POST, ExchangeTimeouts(connect_s=0.02))
    client.check_integrity()
    may_answer.set()
    await client.aclose()
    resolver.close()
