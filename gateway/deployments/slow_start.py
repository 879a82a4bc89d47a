"""SlowStart: new members of a group get a share of the requests that grows with their age, as in Envoy's slow start.

A share of 0.3 means that a member leaves seven of ten requests to others. Shares are relative to the largest of a ready
member, so members that all are new share the requests evenly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.deployments.live import LiveDeployment

LEAST_SHARE: Final = 0.1
_NOBODY: Final[frozenset[str]] = frozenset()


class SlowStart:
    """Warm-up of one group's members; instants are monotonic seconds and are passed in."""

    __slots__ = ("_begun_at", "duration_s", "members")

    def __init__(self, duration_s: float) -> None:
        """Create a group in which nobody warms up; a `duration_s` of 0 gives every member its share at once."""
        self.duration_s = duration_s
        self.members: tuple[LiveDeployment, ...] = ()
        """Members in force."""
        self._begun_at: dict[str, float] = {}

    @property
    def is_active(self) -> bool:
        """Return whether any member may be warming up."""
        return bool(self._begun_at)

    def begin(self, member: str, now: float) -> None:
        """Begin a member's warm-up: a new process is ready there."""
        if self.duration_s > 0:
            self._begun_at[member] = now

    def share(self, member: str, now: float) -> float:
        """Return the member's share of what an old one gets, in (0, 1]."""
        begun_at = self._begun_at.get(member)
        if begun_at is None or now - begun_at >= self.duration_s:
            return 1.0
        return LEAST_SHARE + (1.0 - LEAST_SHARE) * (now - begun_at) / self.duration_s

    def cold(self, now: float, draw: Callable[[str], float]) -> frozenset[str]:
        """Return the members that leave one request to others; none where no other has a free permit.

        Args:
            now: Monotonic time.
            draw: Returns a number in [0, 1) for a member's id, at random or from a conversation's key.
        """
        if not self._begun_at:
            return _NOBODY
        self._begun_at = {name: at for name, at in self._begun_at.items() if now - at < self.duration_s}
        shares = {live.id: self.share(live.id, now) for live in self.members if live.is_ready}
        largest = max(shares.values(), default=1.0)
        cold = frozenset(name for name, share in shares.items() if share < largest and draw(name) * largest >= share)
        is_needed = not any(live.limiter.has_free for live in self.members if live.id in shares and live.id not in cold)
        return _NOBODY if is_needed else cold
