"""Logins by source: a burst, then a rate, and nothing kept for ever."""

from __future__ import annotations

import pytest

from gateway.access.sign_in.source_rate import SourceRate, source_of


def test_a_source_has_its_burst_and_then_its_rate_and_old_sources_are_forgotten() -> None:
    now = [0.0]
    rate = SourceRate(burst=2, per_s=0.5, clock=lambda: now[0], max_sources=100)
    assert [rate.take("a") for _ in range(3)] == [0.0, 0.0, 2.0]
    assert rate.take("b") == 0.0
    now[0] = 2.0
    assert rate.take("a") == 0.0
    now[0] = 1.0  # a clock that goes back gives nothing and takes nothing
    assert rate.take("a") == 2.0
    for number in range(100_000):
        rate.take(f"source {number}")
    assert len(rate) == 100


@pytest.mark.parametrize(
    ("client", "source"),
    [
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64"),
        (("2001:db8:1:2::9", 2), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1), "fe80::/64"),
        (("odd", 1), "odd"),
        (("", 0), "local"),
        (None, "local"),
    ],
)
def test_a_source_is_an_address_or_an_ipv6_network(client: tuple[str, int] | None, source: str) -> None:
    forged = [(b"x-forwarded-for", b"203.0.113.1")]
    assert source_of({"client": client, "headers": forged}) == source
