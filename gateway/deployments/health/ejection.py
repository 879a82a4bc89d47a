"""Ejection: removal of a failing deployment from rotation, and its return through one probe request at a time.

    in rotation ──failures──▶ ejected ──back-off over──▶ half open ──probe answered──▶ in rotation
                                 ▲                           │
                                 └──── probe failed, longer ─┘

The module is pure: the time is passed in, and there is no timer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum


class FailureKind(StrEnum):
    """Kind of a failed exchange, as far as the deployment's health is concerned; a metric label."""

    CONNECT = "connect"
    """Connection refused, unreachable, not verified, or not made in time."""
    STATUS = "status"
    """Server error, or the gateway's credentials refused."""
    BROKEN = "broken"
    """Reset, closed early, not HTTP, or a response without a proper end."""
    TIMEOUT = "timeout"
    """First token, next token or end came too late."""
    STALLED = "stalled"
    """Deployment holds requests, none of which had a token for far longer than forecast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallRules:
    """Rules for when silence is a stall; ValueError for numbers that make no sense."""

    after: float = 4.0
    """Silence of so many times what was expected, and `least_s` at least."""
    least_s: float = 2.0

    def __post_init__(self) -> None:
        if self.after < 1 or self.least_s <= 0:
            raise ValueError("after and least_s: expected 1 or more, and positive seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class EjectionRules:
    """Conditions and durations of an ejection; raises ValueError for inconsistent numbers."""

    consecutive_failures: int = 5
    """Number of failures in a row that eject."""
    failure_ratio: float = 0.5
    """Share of failed recent exchanges that ejects, given at least `min_exchanges`."""
    min_exchanges: int = 20
    window_s: float = 10.0
    """Time constant, in seconds, of the decay by which exchanges are forgotten."""
    stall: StallRules = field(default_factory=StallRules)
    first_s: float = 2.0
    """Back-off of the first ejection in seconds; each further one doubles it."""
    longest_s: float = 60.0
    forget_s: float = 60.0
    """Seconds in rotation after which the next back-off starts from `first_s` again."""

    def __post_init__(self) -> None:
        if self.consecutive_failures < 1 or self.min_exchanges < 1:
            raise ValueError("consecutive_failures and min_exchanges: expected positive integers")
        if not 0 < self.failure_ratio <= 1:
            raise ValueError(f"failure_ratio: expected a share above 0 and up to 1, got {self.failure_ratio}")
        if not 0 < self.first_s <= self.longest_s or self.window_s <= 0 or self.forget_s <= 0:
            raise ValueError("first_s, longest_s, window_s, forget_s: expected positive seconds, first_s <= longest_s")


class EjectionTally:
    """Number of ejected deployments of one gateway; while it is 0, no deployment needs to be checked."""

    __slots__ = ("num_ejected",)

    def __init__(self) -> None:
        self.num_ejected = 0


class Ejection:
    """Ejection state of one deployment."""

    __slots__ = (
        "_at",
        "_backoff_s",
        "_consecutive",
        "_failed",
        "_is_probing",
        "_restored_at",
        "_rules",
        "_tally",
        "_total",
        "_until",
        "began_anew_at",
        "ejected_at",
        "is_in_rotation",
        "num_ejections",
    )

    def __init__(self, rules: EjectionRules, tally: EjectionTally) -> None:
        self._rules = rules
        self._tally = tally
        self._consecutive = 0
        self._failed = 0.0
        self._total = 0.0
        self._at = 0.0
        self._until: float | None = None
        self.is_in_rotation = True
        """True while the deployment is neither ejected nor half open."""
        self._backoff_s = rules.first_s
        self._restored_at: float | None = None
        self._is_probing = False
        self.ejected_at = 0.0
        """Instant of the last ejection."""
        self.began_anew_at = -math.inf
        """Instant of the last return; what began before it, and has shown nothing since, says nothing of now."""
        self.num_ejections = 0

    @property
    def until(self) -> float:
        """Instant at which the back-off ends; only while ejected."""
        assert self._until is not None, "no ejection whose end could be computed"
        return self._until

    def may_probe(self, now: float) -> bool:
        """Return whether the back-off is over and no probe runs."""
        return self._until is not None and now >= self._until and not self._is_probing

    def begin_probe(self, now: float) -> bool:
        """Take the one probe; return False when none is available. End it with `end_probe`."""
        if not self.may_probe(now):
            return False
        self._is_probing = True
        return True

    def end_probe(self) -> None:
        """End the probe, whatever its result."""
        self._is_probing = False

    def succeed(self, now: float) -> None:
        """Count an exchange that succeeded."""
        self._consecutive = 0
        self._count(now, failed=0.0)

    def fail(self, now: float, *, active_at: float) -> bool:
        """Count a failed exchange; return True when it ejects the deployment.

        Ejected ones stay unchanged. `active_at` is when the exchange began or last progressed: one from before the last
        return does not count.
        """
        if self._until is not None or active_at < self.began_anew_at:
            return False
        self._consecutive += 1
        self._count(now, failed=1.0)
        rules = self._rules
        is_bad_share = self._total >= rules.min_exchanges and self._failed >= rules.failure_ratio * self._total
        if self._consecutive < rules.consecutive_failures and not is_bad_share:
            return False
        self.eject(now)
        return True

    def eject(self, now: float) -> None:
        """Eject the deployment, or after a failed probe eject it again for longer."""
        if self._until is None:
            self._tally.num_ejected += 1
            if self._restored_at is None or now - self._restored_at >= self._rules.forget_s:
                self._backoff_s = self._rules.first_s
        self._until = now + self._backoff_s
        self.is_in_rotation = False
        self._backoff_s = min(self._backoff_s * 2, self._rules.longest_s)
        self.ejected_at = now
        self.num_ejections += 1

    def restore(self, now: float) -> None:
        """Return the deployment to rotation and drop its past, except for the length of the next back-off."""
        if self._until is not None:
            self._tally.num_ejected -= 1
            self._restored_at = now
        self._until = None
        self.began_anew_at = now
        self.is_in_rotation = True
        self._is_probing = False
        self._consecutive = 0
        self._failed = self._total = 0.0

    def _count(self, now: float, failed: float) -> None:
        weight = 1.0 - (now - self._at) / self._rules.window_s
        weight = weight if weight > 0.0 else 0.0
        self._at = now
        self._failed = self._failed * weight + failed
        self._total = self._total * weight + 1.0
