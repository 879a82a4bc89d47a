"""AttemptWatch: one exchange under way, as the health of its deployment watches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.deployments.health.ejection import FailureKind


class VigilOwner(Protocol):
    """Whose exchanges are watched, and what is told of them."""

    @property
    def least_patience_s(self) -> float:
        """No shorter silence is too long."""
        ...

    def patience_s(self, expected_s: float) -> float:
        """The silence that is too long where a token was expected within `expected_s`."""
        ...

    @property
    def num_stalls(self) -> int:
        """Stalls since anything came from there."""
        ...

    def plain_patience_s(self, bound_s: float, num_stalls: int) -> float:
        """The silence that is too long where a plain answer should be whole within `bound_s`."""
        ...

    def note_success(self, now: float, *, since: float | None = None, is_probe: bool = False) -> None:
        """An exchange went well."""
        ...

    def note_failure(self, now: float, kind: FailureKind, *, is_probe: bool = False) -> None:
        """An exchange failed."""
        ...

    def leave(self, vigil: AttemptWatch) -> None:
        """The exchange is over."""
        ...


class ResponseProgress(Protocol):
    """What a vigil looks at: the response under way."""

    num_progress: int
    """Pieces so far that count as progress."""

    @property
    def is_paused(self) -> bool:
        """Whether we stopped reading ourselves."""
        ...


class AttemptWatch:
    """One exchange under way. End it once, with `succeeded`, `failed` or `dropped`; a second end does nothing."""

    __slots__ = (
        "_bound_s",
        "_health",
        "_num_seen",
        "_num_stalls",
        "began_at",
        "is_probe",
        "on_stalled",
        "patience_s",
        "response",
    )

    def __init__(self, health: VigilOwner, now: float, *, is_probe: bool) -> None:
        self._health: VigilOwner | None = health
        self._num_seen = self._num_stalls = 0
        self._bound_s: Callable[[], float] | None = None
        self.began_at = now
        self.is_probe = is_probe
        """It is the one request by which an ejected deployment is tried."""
        self.patience_s: float | None = None
        """Longest silence of the whole deployment that is still normal while this waits; None: any."""
        self.response: ResponseProgress | None = None
        """Set when the request is on the wire."""
        self.on_stalled: Callable[[], None] | None = None
        """Called when the deployment is found stalled while this waits for its first token."""

    def succeeded(self, now: float) -> None:
        """A whole answer came, an error of the client's included."""
        health = self._end()
        if health is not None:
            health.note_success(now, since=self.began_at, is_probe=self.is_probe)

    def failed(self, now: float, kind: FailureKind) -> None:
        """It ended in a way that is the deployment's fault."""
        health = self._end()
        if health is not None:
            health.note_failure(now, kind, is_probe=self.is_probe)

    def dropped(self) -> None:
        """It ended without saying anything about the deployment: the client left, or another answer was faster."""
        if self._health is not None:
            self._end()

    def expect(self, seconds: float) -> None:
        """A token should come within `seconds`: silence of a multiple of that is a stall."""
        if self._health is not None:
            self.patience_s = self._health.patience_s(seconds)

    def expect_whole(self, bound_s: Callable[[], float]) -> None:
        """A plain answer should be there within so many seconds, a bound and no mean: silence beyond it is a stall.

        The bound is worked out once the shortest patience is over, which hardly any answer takes.
        """
        if self._health is not None:
            self._bound_s, self._num_stalls = bound_s, self._health.num_stalls

    def is_overdue(self, quiet_s: float) -> bool:
        """Whether so long a silence is too long for what this waits for."""
        health = self._health
        if health is not None and self._bound_s is not None and quiet_s > health.least_patience_s:
            self.patience_s, self._bound_s = health.plain_patience_s(self._bound_s(), self._num_stalls), None
        return self.patience_s is not None and quiet_s > self.patience_s

    def leave(self) -> None:
        """The deployment is silent: go elsewhere, unless something came for this exchange already."""
        if self._num_seen == 0 and self.on_stalled is not None:
            self.on_stalled()

    def has_moved(self) -> bool:
        """Whether tokens came since this was last asked; reading that we paused ourselves counts as moving."""
        response = self.response
        if response is None:
            return False
        num_before, self._num_seen = self._num_seen, response.num_progress
        return self._num_seen != num_before or response.is_paused

    def _end(self) -> VigilOwner | None:
        health, self._health = self._health, None
        self.on_stalled = self._bound_s = None  # they lead back to whoever holds this vigil
        if health is not None:
            health.leave(self)
        return health
