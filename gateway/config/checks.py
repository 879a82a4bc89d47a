"""ConfigError, and the checks that settings of several sections need."""

from __future__ import annotations

from gateway.config.addresses import address_problem


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


def _shown(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
