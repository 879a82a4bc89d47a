"""Settings of discovery: where this process looks for the members of deployments."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from gateway.config.addresses import address_problem
from gateway.config.checks import ConfigError, require_range


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverySettings:
    """`[process.discovery]`: how members of deployments with `discover` are found; the policy names them."""

    dns_server: str = ""
    """IP address and port of a name server for `dns` and `srv`, as in `10.0.0.1:53`; empty: those of
    `/etc/resolv.conf`, with its search domains."""
    kubernetes_url: str = ""
    """URL of the Kubernetes API server; empty: that of the pod's environment."""
    kubernetes_token_file: Path | None = None
    """File with the token for it, read anew for every request; None: the pod's service account, or no token where
    `kubernetes_url` is set."""
    kubernetes_ca_file: Path | None = None
    """PEM certificates of the authorities for it; None: those of the service account, or the system's where
    `kubernetes_url` is set."""
    drain_s: float = 30.0
    """Least time for which a member that is no longer listed keeps its connections and figures, in case it returns."""

    def __post_init__(self) -> None:
        """Reject values no type can; ConfigError starts with the key."""
        if self.dns_server and (problem := address_problem(self.dns_server) or _server_problem(self.dns_server)):
            raise ConfigError(f"dns_server: {problem}")
        if self.kubernetes_url and not self.kubernetes_url.startswith(("http://", "https://")):
            raise ConfigError(f"kubernetes_url: expected https://host:port, got {self.kubernetes_url!r}")
        require_range("drain_s", self.drain_s, 0.0, 3600.0)


def _server_problem(address: str) -> str | None:
    """Return what is wrong with the address of a name server, which no name server could resolve."""
    host, _, port = address.rpartition(":")
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return f'expected an IP address and a port, such as 10.0.0.1:53 or [fd00::1]:53, got "{address}"'
    return None if int(port) else f'expected a port from 1 to 65535, got "{address}"'
