"""PublicResolver: no address inside of private networks, in whatever form."""

from __future__ import annotations

import time

import pytest

from gateway.upstreams.http1.errors import ResolveError
from gateway.upstreams.public_addresses import PublicResolver, is_public_address


@pytest.mark.parametrize(
    ("address", "is_public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("::ffff:93.184.216.34", True),
        ("127.0.0.1", False),
        ("127.8.8.8", False),
        ("10.0.0.1", False),
        ("172.16.3.4", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),  # metadata of cloud machines
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("255.255.255.255", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::1", False),
        ("localhost", False),
    ],
)
def test_what_is_public(address: str, is_public: bool) -> None:
    assert is_public_address(address) is is_public


async def test_private_addresses_of_a_name_are_left_out() -> None:
    found = {"both.example": ["10.0.0.1", "93.184.216.34"], "inner.example": ["10.0.0.1", "::1"]}
    resolver = PublicResolver(clock=time.monotonic, lookup=found.__getitem__)
    assert await resolver.resolve("both.example") == ("93.184.216.34",)
    with pytest.raises(ResolveError, match=r"private networks \(10\.0\.0\.1, ::1\)"):
        await resolver.resolve("inner.example")
    with pytest.raises(ResolveError):
        await resolver.resolve("127.0.0.1")
    resolver.close()
