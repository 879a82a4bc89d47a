"""Bounds on the cost of one connection and one request before the application sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds of a listener's connections; an impossible value raises a ValueError that names its field."""

    max_total: int = 10_000
    max_per_ip: int = 0
    """Cap on the connections of one IP; 0 switches it off. Unix sockets have no IP and are never counted."""
    max_pipelined: int = 16
    idle_keep_alive_s: float = 75.0
    write_stall_timeout_s: float = 30.0
    """Longest time in which a client accepts no byte at all while bytes for it are waiting."""
    linger_s: float = 2.0
    write_high_water_bytes: int = 64 * 1024

    def __post_init__(self) -> None:
        """Reject a bound that would switch a protection off by accident."""
        _require_sense(self, may_be_zero=frozenset({"max_per_ip"}))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderLimits:
    """Bounds of a request's line and header fields; an impossible value raises a ValueError that names its field."""

    timeout_s: float = 10.0
    max_bytes: int = 32 * 1024
    max_fields: int = 100
    max_uri_bytes: int = 8192

    def __post_init__(self) -> None:
        """Reject a bound that would switch a protection off by accident."""
        _require_sense(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """Bounds of a request's body; an impossible value raises a ValueError that names its field.

    The rate is checked from `grace_s` on, the total time is `timeout_s`.
    """

    timeout_s: float = 60.0
    grace_s: float = 5.0
    min_bytes_per_s: int = 500
    max_bytes: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        """Reject a bound that would switch a protection off by accident."""
        _require_sense(self, may_be_zero=frozenset({"min_bytes_per_s", "grace_s", "max_bytes"}))


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeLimits:
    """Bounds of one listener. Times are seconds, sizes bytes."""

    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    header: HeaderLimits = field(default_factory=HeaderLimits)
    body: BodyLimits = field(default_factory=BodyLimits)


def _require_sense(
    limits: ConnectionLimits | HeaderLimits | BodyLimits, may_be_zero: frozenset[str] = frozenset()
) -> None:
    for item in fields(limits):
        value = getattr(limits, item.name)
        is_good = value >= 0 if item.name in may_be_zero else value > 0
        if not is_good or not math.isfinite(value):
            expected = "zero or more" if item.name in may_be_zero else "a positive number"
            raise ValueError(f"{item.name}: expected {expected}, got {value!r}")
