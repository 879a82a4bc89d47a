"""What one connection and one request may cost before the application sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

_MAY_BE_ZERO = frozenset({"max_connections_per_ip", "body_min_bytes_per_s", "body_grace_s", "max_body_bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeLimits:
    """Bounds of one listener; ValueError names the field when one makes no sense.

    Times are seconds, sizes bytes. `max_connections_per_ip=0` switches that cap off; Unix sockets have no IP and
    are never counted. The body's rate is checked from `body_grace_s` on, its total time is `body_timeout_s`.
    `write_stall_timeout_s` is how long a client may take nothing at all while bytes for it are waiting.
    """

    header_timeout_s: float = 10.0
    body_timeout_s: float = 60.0
    body_grace_s: float = 5.0
    body_min_bytes_per_s: int = 500
    idle_keep_alive_s: float = 75.0
    write_stall_timeout_s: float = 30.0
    linger_s: float = 2.0
    max_header_bytes: int = 32 * 1024
    max_header_fields: int = 100
    max_uri_bytes: int = 8192
    max_body_bytes: int = 16 * 1024 * 1024
    max_pipelined: int = 16
    write_high_water_bytes: int = 64 * 1024
    max_connections: int = 10_000
    max_connections_per_ip: int = 0

    def __post_init__(self) -> None:
        """Reject a bound that would switch a protection off by accident."""
        for field in fields(self):
            value = getattr(self, field.name)
            floor_ok = value >= 0 if field.name in _MAY_BE_ZERO else value > 0
            if not floor_ok or not math.isfinite(value):
                expected = "zero or more" if field.name in _MAY_BE_ZERO else "a positive number"
                raise ValueError(f"{field.name}: expected {expected}, got {value!r}")
