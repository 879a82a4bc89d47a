"""`[cache.recalls]`: who is remembered as a receiver of similar answers, and where notices may be sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.config.checks import ConfigError, require_range

DAY_S: Final = 24 * 3600.0
HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallSettings:
    """`[cache.recalls]`: notices to those who received a similar answer that proved wrong."""

    retention_days: float = 7.0
    """Time for which the receivers of similar answers, and then their notices, are remembered; 0: no recalls."""
    max_answers: int = 10_000
    """Receivers, and notices, that are remembered for each tenant; of more the oldest go."""
    give_up_hours: float = 24.0
    """Time from a recall after which a webhook that still fails is not called again for it."""
    allow_private_webhooks: bool = False
    """True if webhooks may be in private networks and use plain HTTP."""

    def __post_init__(self) -> None:
        """Reject values no type can; ConfigError starts with the key."""
        if not 0.0 <= self.retention_days <= 90.0:
            raise ConfigError(f"retention_days: expected 0 to 90, got {self.retention_days:g}")
        require_range("max_answers", self.max_answers, 100, 50_000)
        require_range("give_up_hours", self.give_up_hours, 0.1, 720.0)

    @property
    def is_on(self) -> bool:
        """Return whether receivers are remembered."""
        return self.retention_days > 0.0
