"""Members by DNS, against a name server on a real UDP socket."""

from __future__ import annotations

import asyncio

import pytest

from gateway.discovery.dns_source import (
    LEAST_TTL_S,
    LONGEST_TTL_S,
    LOOKUP_TIMEOUT_S,
    NEGATIVE_TTL_S,
    DnsClient,
    DnsRecords,
    DnsSource,
)
from gateway.discovery.source import SourceError
from tests.gateway.discovery.recorded import Pauses, following
from tests.gateway.discovery.scripted_dns import scripted_dns

NAME = "engine.example.svc"
FULL = f"{NAME}."


async def test_ipv4_addresses_are_the_members_so_that_no_host_counts_twice() -> None:
    async with scripted_dns() as server:
        server.ttl_s = 3
        server.zone = {(FULL, "A"): ["10.0.0.2", "10.0.0.1"], (FULL, "AAAA"): ["fd00::1"]}
        pauses = Pauses()
        async with following(DnsSource(NAME, 8000, DnsClient(server.server), pause=pauses)) as seen:
            assert await seen.next() == ["10.0.0.1:8000", "10.0.0.2:8000"]
            assert 2.0 < await pauses.begun() <= 3.0


async def test_ipv6_addresses_are_the_members_where_there_are_no_others() -> None:
    async with scripted_dns() as server:
        server.zone = {(FULL, "AAAA"): ["fd00::2", "fd00::1"]}
        async with following(DnsSource(NAME, 8000, DnsClient(server.server), pause=Pauses())) as seen:
            assert await seen.next() == ["[fd00::1]:8000", "[fd00::2]:8000"]


async def test_a_server_that_is_silent_about_the_other_family_delays_nothing() -> None:
    async with scripted_dns() as server:
        server.zone = {(FULL, "A"): ["10.0.0.1"], (FULL, "AAAA"): "silent"}
        async with following(DnsSource(NAME, 8000, DnsClient(server.server), pause=Pauses())) as seen:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S / 2):
                assert await seen.next() == ["10.0.0.1:8000"]


async def test_the_other_family_is_used_while_the_first_fails_and_nothing_is_known_of_it() -> None:
    async with scripted_dns() as server:
        server.zone = {(FULL, "A"): "SERVFAIL", (FULL, "AAAA"): ["fd00::1"]}
        async with following(DnsSource(NAME, 8000, DnsClient(server.server), pause=Pauses())) as seen:
            assert await seen.next() == ["[fd00::1]:8000"]


async def test_a_family_that_was_left_for_the_other_one_is_not_remembered() -> None:
    async with scripted_dns() as server:
        server.zone = {(FULL, "AAAA"): ["fd00::1"]}
        pauses = Pauses()
        async with following(DnsSource(NAME, 8000, DnsClient(server.server), pause=pauses)) as seen:
            assert await seen.next() == ["[fd00::1]:8000"]
            server.zone = {(FULL, "A"): ["10.0.0.1"]}
            await pauses.pass_()
            assert await seen.next() == ["10.0.0.1:8000"]
            server.zone = {(FULL, "AAAA"): "SERVFAIL"}
            await pauses.pass_()
            assert NAME in await seen.failure()


async def test_the_name_is_resolved_anew_when_the_ttl_ends() -> None:
    async with scripted_dns() as server:
        server.zone = {(FULL, "A"): ["10.0.0.1"]}
        pauses = Pauses()
        async with following(DnsSource(NAME, 8000, DnsClient(server.server), pause=pauses)) as seen:
            assert await seen.next() == ["10.0.0.1:8000"]
            server.zone = {(FULL, "A"): ["10.0.0.1", "10.0.0.9"]}
            assert len(server.questions) == 1, "the other family is not needed"
            await pauses.pass_()
            assert await seen.next() == ["10.0.0.1:8000", "10.0.0.9:8000"]


@pytest.mark.parametrize("code", ["SERVFAIL", "REFUSED"])
async def test_a_failing_server_is_reported_and_tried_again_with_longer_pauses(code: str) -> None:
    async with scripted_dns() as server:
        server.zone = {(FULL, "A"): code, (FULL, "AAAA"): code}
        pauses = Pauses()
        async with following(DnsSource(NAME, 8000, DnsClient(server.server), pause=pauses)) as seen:
            assert NAME in await seen.failure()
            assert [await pauses.pass_(), await seen.failure() and await pauses.pass_()] == [0.5, 1.0]
            await seen.failure()
            server.zone = {(FULL, "A"): ["10.0.0.1"]}
            await pauses.pass_()
            assert await seen.next() == ["10.0.0.1:8000"]


@pytest.mark.parametrize("zone", [{}, {(FULL, "TXT"): ["x"]}])
async def test_a_name_without_addresses_has_no_members_and_is_no_failure(
    zone: dict[tuple[str, str], list[str]],
) -> None:
    async with scripted_dns() as server:
        server.zone = dict(zone)
        pauses = Pauses()
        async with following(DnsSource(NAME, 8000, DnsClient(server.server), pause=pauses)) as seen:
            assert await seen.next() == []
            assert NEGATIVE_TTL_S - 1.0 < await pauses.begun() <= NEGATIVE_TTL_S, "no SOA says for how long"


async def test_a_family_that_fails_keeps_its_last_addresses() -> None:
    async with scripted_dns() as server:
        server.zone = {(FULL, "A"): ["10.0.0.1"], (FULL, "AAAA"): ["fd00::1"]}
        pauses = Pauses()
        async with following(DnsSource(NAME, 8000, DnsClient(server.server), pause=pauses)) as seen:
            await seen.next()
            server.zone = {(FULL, "A"): "SERVFAIL", (FULL, "AAAA"): ["fd00::2"]}
            await pauses.pass_()
            assert await seen.next() == ["10.0.0.1:8000"]


async def test_service_records_name_the_ports_and_the_first_priority_counts() -> None:
    async with scripted_dns() as server:
        server.zone = {
            ("_http._tcp.engine.", "SRV"): ["10 5 8001 A.example.", "10 5 8000 b.example.", "20 5 9000 spare.example."]
        }
        pauses = Pauses()
        async with following(DnsSource("_http._tcp.engine", None, DnsClient(server.server), pause=pauses)) as seen:
            assert await seen.next() == ["a.example:8001", "b.example:8000"]


async def test_a_ttl_of_zero_and_one_of_a_day_are_bounded() -> None:
    for ttl_s, expected in ((0.0, LEAST_TTL_S), (86_400.0, LONGEST_TTL_S)):

        async def lookup(name: str, kind: str, ttl_s: float = ttl_s) -> DnsRecords:
            return DnsRecords(((0, "10.0.0.1", 0),) if kind == "A" else (), ttl_s)

        pauses = Pauses()
        async with following(DnsSource(NAME, 1, lookup, pause=pauses)):
            assert await pauses.begun() == expected


async def test_a_server_that_is_silent_is_a_failure_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.discovery.dns_source.LOOKUP_TIMEOUT_S", 0.1)
    async with scripted_dns() as server:
        server.zone = {(FULL, "A"): "silent"}
        with pytest.raises(SourceError, match=NAME):
            await DnsClient(server.server)(NAME, "A")


async def test_a_name_server_that_is_no_address_is_a_failure_and_no_crash() -> None:
    with pytest.raises(SourceError, match=r"dns\.example"):
        await DnsClient("dns.example:53")(NAME, "A")
