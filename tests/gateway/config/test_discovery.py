"""Settings of discovery."""

from __future__ import annotations

import pytest

from gateway.config.checks import ConfigError
from gateway.config.discovery import DiscoverySettings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dns_server", "10.0.0.1"),
        ("dns_server", "dns.example:53"),
        ("dns_server", "unix:/run/dns.sock"),
        ("dns_server", "10.0.0.1:0"),
        ("kubernetes_url", "kube:6443"),
        ("drain_s", -1.0),
        ("drain_s", 3601.0),
    ],
)
def test_values_that_cannot_be_are_refused_by_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: "):
        DiscoverySettings(**{key: value})  # type: ignore[arg-type]


def test_nothing_has_to_be_set() -> None:
    assert DiscoverySettings().dns_server == ""


@pytest.mark.parametrize("server", ["10.0.0.1:53", "[fd00::1]:53"])
def test_a_name_server_is_an_ip_address_with_its_port(server: str) -> None:
    assert DiscoverySettings(dns_server=server).dns_server == server
