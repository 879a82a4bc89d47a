"""DnsSource: members by A and AAAA records, or by SRV records, resolved anew when their TTL ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from gateway.discovery.source import Listing, Pause, SourceError, poll, usable
from routing_policies.policy.members import Address

LEAST_TTL_S: Final = 1.0
"""Shortest time between two lookups; a TTL of 0 would send queries without end."""
LONGEST_TTL_S: Final = 300.0
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
            ttl_s = min((one.resolve_chaining().minimum_ttl for one in responses), default=LEAST_TTL_S)
            return DnsRecords((), ttl_s)
        except (dns.exception.DNSException, OSError) as error:
            raise SourceError(f"{name} {kind}: {str(error)[:200] or type(error).__name__}") from error
        values = tuple(sorted(_value(kind, record) for record in answer.rrset or ()))
        return DnsRecords(values, max(answer.expiration - time.time(), 0.0))

    def _resolver(self) -> Any:
        import dns.asyncresolver
        import dns.exception

        try:
            resolver = dns.asyncresolver.Resolver(configure=not self._server)
        except (dns.exception.DNSException, OSError) as error:
            raise SourceError(f"resolv.conf: {error}") from error
        if self._server:
            host, _, port = self._server.rpartition(":")
            resolver.nameservers, resolver.port = [host.strip("[]")], int(port)
        return resolver


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
            listing.take(usable(members))
            return min(max(float(ttl_s), LEAST_TTL_S), LONGEST_TTL_S)

        await poll(once, listing, self._pause)

    async def _look_addresses(self) -> tuple[list[Address], float]:
        """Return the members by both address families.

        A family that cannot be looked up keeps its last records while the other one answers.
        """
        kinds = ("A", "AAAA")
        found = await asyncio.gather(*(self._lookup(self._name, kind) for kind in kinds), return_exceptions=True)
        ttls: list[float] = []
        for kind, records in zip(kinds, found, strict=True):
            if isinstance(records, DnsRecords):
                self._known[kind] = records.values
                ttls.append(records.ttl_s)
            elif not isinstance(records, SourceError):
                raise records
        failed = next((one for one in found if isinstance(one, SourceError)), None)
        hosts = [host for kind in kinds for _, host, _ in self._known.get(kind, ())]
        if failed is not None and (not ttls or not hosts):
            raise failed
        assert self._port is not None, "address records name no port"
        return [Address(host, self._port) for host in hosts], min(ttls)

    async def _look_services(self) -> tuple[list[Address], float]:
        """Return the targets of the lowest priority value, which RFC 2782 wants to be used first."""
        records = await self._lookup(self._name, "SRV")
        first = min((priority for priority, _, _ in records.values), default=0)
        members = [Address(host, port) for priority, host, port in records.values if priority == first and host]
        return members, records.ttl_s
