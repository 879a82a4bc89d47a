"""ConfigError, and the checks that settings of several sections need."""

from __future__ import annotations

from pathlib import Path

from gateway.config.addresses import address_problem, is_socket


class ConfigError(ValueError):
    """A process setting is wrong; the message names its file and key, or its variable, and the remedy."""


def require_range(key: str, value: float, low: float, high: float) -> None:
    """Reject a value outside of its bounds, both included. Raises ConfigError."""
    if not low <= value <= high:
        raise ConfigError(f"{key}: expected {_shown(low)} to {_shown(high)}, got {_shown(value)}")


def require_address(address: str) -> None:
    """Reject a listener's address that cannot be bound. Raises ConfigError."""
    if problem := address_problem(address):
        raise ConfigError(f"listen: {problem}")


def require_tls_pair(address: str, cert_file: Path | None, key_file: Path | None) -> None:
    """Reject a certificate without its key, and TLS on a Unix socket. Raises ConfigError."""
    if (cert_file is None) != (key_file is None):
        missing = "tls_key" if key_file is None else "tls_cert"
        raise ConfigError(f"{missing}: tls_cert and tls_key belong together: give both, or neither for plain HTTP")
    if cert_file is not None and is_socket(address):
        raise ConfigError(
            f"tls_cert: {address} is a Unix socket, which carries plain HTTP; remove tls_cert and tls_key"
        )


def _shown(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
