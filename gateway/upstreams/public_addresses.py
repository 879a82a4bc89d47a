"""PublicResolver: a resolver that knows no address inside of private networks.

A connection is made to an address that was checked, not to a name that is resolved again. So a name whose address
changes between check and use gains nothing.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

from gateway.upstreams.http1.errors import ResolveError
from gateway.upstreams.resolver import Resolver

_NAT64: Final = IPv6Network("64:ff9b::/96")


def is_public_address(text: str) -> bool:
    """Return whether an address belongs to the public internet.

    Loopback, private, link-local, shared, multicast and reserved addresses do not, nor do IPv6 forms of such IPv4
    addresses.
    """
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    inner = _embedded(address) if isinstance(address, IPv6Address) else None
    if inner is not None:
        address = inner
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (None if address.teredo is None else address.teredo[1])


class PublicResolver(Resolver):
    """A resolver whose answers have public addresses alone."""

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Return the public addresses of a host; raises ResolveError for one that has none."""
        found = await super().resolve(host)
        public = tuple(address for address in found if is_public_address(address))
        if not public:
            raise ResolveError(f"{host}: its addresses are in private networks ({', '.join(found)})")
        return public
