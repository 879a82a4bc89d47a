"""DnsSource: members by A records, else AAAA records, or by SRV records, resolved anew when their TTL ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from gateway.discovery.source import Listing, Pause, SourceError, poll, take_usable
from routing_policies.policy.members import Address

LEAST_TTL_S: Final = 1.0
"""Shortest time between two lookups; a TTL of 0 would send queries without end."""
LONGEST_TTL_S: Final = 300.0
NEGATIVE_TTL_S: Final = 5.0
"""Longest time for which "there are none" holds where the answer has no SOA record that says so (RFC 2308)."""
LOOKUP_TIMEOUT_S: Final = 5.0


class DnsRecords(NamedTuple):
    """Records of one type for one name."""

    values: tuple[tuple[int, str, int], ...]
    """Priority, host or address, and port; priority and port are 0 for address records."""
    ttl_s: float


class DnsLookup(Protocol):
    """Lookup of one record type."""

    async def __call__(self, name: str, kind: str) -> DnsRecords:
        """Return the records, none where the name has none of this kind; raises SourceError."""
        ...


class DnsClient:
    """Lookups at the name servers of `resolv.conf`, or at one named server."""

    def __init__(self, server: str = "") -> None:
        """Use the server `host:port`; empty means those of the system."""
        self._server = server

    async def __call__(self, name: str, kind: str) -> DnsRecords:
        """Return the records; a name that does not exist has none.

        Raises:
            SourceError: No server gave an answer, or there is none.
        """
        import dns.exception  # only who uses it pays for its imports
        import dns.resolver

        try:
            answer = await self._resolver().resolve(
                name, kind, raise_on_no_answer=False, lifetime=LOOKUP_TIMEOUT_S, search=True
            )
        except dns.resolver.NXDOMAIN as error:
            responses = error.responses().values()  # type: ignore[no-untyped-call]
            ttls = (_negative_ttl_s(one.resolve_chaining().minimum_ttl, one) for one in responses)
            return DnsRecords((), min(ttls, default=LEAST_TTL_S))
        except (dns.exception.DNSException, OSError) as error:
            raise SourceError(f"{name} {kind}: {str(error)[:200] or type(error).__name__}") from error
        values = tuple(sorted(_value(kind, record) for record in answer.rrset or ()))
        ttl_s = max(answer.expiration - time.time(), 0.0)
        return DnsRecords(values, ttl_s if values else _negative_ttl_s(ttl_s, answer.response))

    def _resolver(self) -> Any:
        import dns.asyncresolver
        import dns.exception

        try:
            resolver = dns.asyncresolver.Resolver(configure=not self._server)
        except (dns.exception.DNSException, OSError) as error:
            raise SourceError(f"resolv.conf: {error}") from error
        if self._server:
            host, _, port = self._server.rpartition(":")
            try:
                resolver.nameservers, resolver.port = [host.strip("[]")], int(port)
            except ValueError as error:
                raise SourceError(f"name server {self._server}: {error}") from error
        return resolver


def _negative_ttl_s(ttl_s: float, response: Any) -> float:
    """Return for how long an answer without records holds; the resolver's default is a day and more."""
    import dns.rdatatype

    has_soa = any(found.rdtype == dns.rdatatype.SOA for found in response.authority)
    return ttl_s if has_soa else min(ttl_s, NEGATIVE_TTL_S)


def _value(kind: str, record: Any) -> tuple[int, str, int]:
    if kind == "SRV":
        return record.priority, str(record.target).rstrip(".").lower(), record.port
    return 0, str(record.address), 0


class DnsSource:
    """Members of one name."""

    def __init__(
        self,
        name: str,
        port: int | None,
        lookup: DnsLookup,
        *,
        pause: Pause = asyncio.sleep,
    ) -> None:
        """Look up address records and join them with `port`; SRV records where it is None."""
        self._name = name
        self._port = port
        self._lookup = lookup
        self._pause = pause
        self._known: dict[str, tuple[tuple[int, str, int], ...]] = {}
        """Last records by type."""

    async def follow(self, listing: Listing) -> None:
        """Resolve for ever; ends by cancellation."""
        look: Callable[[], Any] = self._look_addresses if self._port is not None else self._look_services

        async def once() -> float:
            members, ttl_s = await look()
            take_usable(listing, members)
            return min(max(float(ttl_s), LEAST_TTL_S), LONGEST_TTL_S)

        await poll(once, listing, self._pause)

    async def _look_addresses(self) -> tuple[list[Address], float]:
        """Return the members by A records, or by AAAA records where there are no others.

        A host with addresses of both families would count as two. The second family is looked up only where the first
        has none, so a name server that stays silent about it delays nothing. A family that cannot be looked up keeps
        its last records while the other one answers.
        """
        assert self._port is not None, "address records name no port"
        ttls: list[float] = []
        failed: SourceError | None = None
        for kind in ("A", "AAAA"):
            try:
                records = await self._lookup(self._name, kind)
            except SourceError as error:
                failed = failed or error
                continue
            ttls.append(records.ttl_s)
            if kind == "A" and records.values:
                self._known = {kind: records.values}
                break
            self._known[kind] = records.values
        known = self._known.get("A") or self._known.get("AAAA") or ()
        if failed is not None and (not ttls or not known):
            raise failed
        return [Address(host, self._port) for _, host, _ in known], min(ttls)

    async def _look_services(self) -> tuple[list[Address], float]:
        """Return the targets of the lowest priority value, which RFC 2782 wants to be used first."""
        records = await self._lookup(self._name, "SRV")
        first = min((priority for priority, _, _ in records.values), default=0)
        members = [Address(host, port) for priority, host, port in records.values if priority == first and host]
        return members, records.ttl_s
