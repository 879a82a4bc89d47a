"""DeploymentHealth: health of a deployment, measured by the tokens it produces and not by its open port."""

from __future__ import annotations

import math
from collections.abc import Callable

from gateway.deployments.health.attempt_watch import AttemptWatch
from gateway.deployments.health.ejection import Ejection, EjectionRules, EjectionTally, FailureKind

MAX_PUSHBACK_S = 60.0
"""Longest time in seconds for which a deployment's Retry-After keeps it out."""

DOUBT_S = 1.0
"""Seconds of silence, with several requests held, after which other deployments are preferred."""
DOUBT_HELD = 4
"""Number of held requests needed for that doubt; so few others cannot overload the rest."""
MAX_DOUBLINGS = 6
"""Largest number of doublings of the patience with whole responses, one for each stall in a row."""

EjectionHook = Callable[[FailureKind, float], None]
"""Callback with the kind of failure and the seconds of an ejection."""


def _ignore(kind: FailureKind, backoff_s: float) -> None:
    """Ignore an ejection; the default hook."""


class DeploymentHealth:
    """Health of one deployment; the time is passed in, and `sweep` must be called a few times a second."""

    __slots__ = (
        "_attempt_watches",
        "_ejection",
        "_is_out_for_silence",
        "_last_progress_at",
        "_on_ejected",
        "_pushback_until",
        "_rules",
        "_tally",
        "is_doubtful",
        "is_fit",
        "is_usual",
        "num_stalls",
    )

    def __init__(
        self,
        *,
        rules: EjectionRules | None = None,
        tally: EjectionTally | None = None,
        on_ejected: EjectionHook = _ignore,
    ) -> None:
        self._rules = rules or EjectionRules()
        self._tally = tally or EjectionTally()
        self._ejection = Ejection(self._rules, self._tally)
        self._on_ejected = on_ejected
        self._attempt_watches: dict[AttemptWatch, None] = {}
        self._last_progress_at = -math.inf
        self._pushback_until = 0.0
        self.is_fit = True
        """True if neither ejected nor under a Retry-After."""
        self.is_doubtful = False
        """True if silent for a while with several requests held; others are then preferred."""
        self.is_usual = True
        """True if fit and not doubtful; then no further check is needed."""
        self.num_stalls = 0
        """Number of stalls, probes included, since the deployment last sent anything."""
        self._is_out_for_silence = False
        """True while ejected for a stall."""

    # For routing.

    def is_ejected(self, now: float) -> bool:
        """Return whether requests must go elsewhere; False once a probe may try it after the back-off."""
        return not self._ejection.is_in_rotation and not self._ejection.may_probe(now)

    def may_probe(self, now: float) -> bool:
        """Return whether it is ejected, its back-off is over, and one request may probe it."""
        return self._ejection.may_probe(now)

    def returns_at(self) -> float:
        """Return the instant at which the back-off ends; only while ejected."""
        return self._ejection.until

    def pushback_s(self, now: float) -> float:
        """Return the remaining seconds of its Retry-After, else 0.0."""
        if now >= self._pushback_until:
            self._leave_alone_until(0.0)
            return 0.0
        return self._pushback_until - now

    @property
    def num_under_way(self) -> int:
        """Number of exchanges being watched."""
        return len(self._attempt_watches)

    # For forwarding.

    def begin(self, now: float) -> AttemptWatch:
        """Watch a request that is about to be sent; it is the probe when one is due. The watch must be ended."""
        is_probe = not self._ejection.is_in_rotation and self._ejection.begin_probe(now)
        attempt_watch = AttemptWatch(self, now, is_probe=is_probe)
        self._attempt_watches[attempt_watch] = None
        return attempt_watch

    def leave(self, attempt_watch: AttemptWatch) -> None:
        """Remove a watch that has ended; called by the watch."""
        del self._attempt_watches[attempt_watch]
        if attempt_watch.is_probe:
            self._ejection.end_probe()

    def note_progress(self, now: float) -> None:
        """Record a token of any request, or a report that the engine computes."""
        self._last_progress_at = now
        self.num_stalls = 0
        if self.is_doubtful:
            self._note_doubt(is_doubtful=False)

    @property
    def has_answered(self) -> bool:
        """True if the deployment has ever sent anything."""
        return self._last_progress_at > -math.inf

    def is_suspect(self, now: float) -> bool:
        """Return whether it is out of rotation, or holds requests and was silent for the shortest patience."""
        if not self._ejection.is_in_rotation:
            return True
        oldest = next(filter(self._is_current, self._attempt_watches), None)
        return oldest is not None and self._idle_s(oldest, now) >= self._rules.stall.least_s

    def idle_s(self, now: float) -> float:
        """Return the seconds since the last observed token."""
        return now - self._last_progress_at

    def note_success(self, now: float, *, since: float | None = None, is_probe: bool = False) -> None:
        """Record an exchange that succeeded, and end an ejection where it refutes it.

        The probe does, and so does an exchange begun (`since`) after the ejection. Any response refutes an ejection for
        silence.
        """
        self.note_progress(now)
        ejection = self._ejection
        if ejection.is_in_rotation:
            ejection.succeed(now)
        elif is_probe or self._is_out_for_silence or (since is not None and since >= ejection.ejected_at):
            self._restore(now)
            self._note_fitness()

    def note_failure(
        self, now: float, kind: FailureKind, *, since: float | None = None, is_probe: bool = False
    ) -> None:
        """Record a failed exchange, which may eject; a failed probe ejects again, for longer.

        `since` is when the exchange began or last progressed: one from before the last return does not count.
        """
        if is_probe and not self._ejection.is_in_rotation:
            self._eject(now, kind)
        elif self._ejection.fail(now, active_at=now if since is None else since):
            self._note_ejected(now, kind)

    def note_pushback(self, now: float, retry_after_s: float) -> None:
        """Keep requests away after a 429 with Retry-After, which is no failure."""
        self._leave_alone_until(max(self._pushback_until, now + min(retry_after_s, MAX_PUSHBACK_S)))

    def reset(self, now: float) -> None:
        """Drop the past, because a new process serves at the deployment's address."""
        self._restore(now)
        self._leave_alone_until(0.0)

    # Liveness by token progress.

    def patience_s(self, expected_s: float) -> float:
        """Return the seconds of silence that count as a stall where a token was expected within `expected_s`."""
        return max(self._rules.stall.least_s, self._rules.stall.after * expected_s)

    @property
    def least_patience_s(self) -> float:
        """Seconds of silence below which nothing counts as a stall."""
        return self._rules.stall.least_s

    def plain_patience_s(self, bound_s: float, num_stalls: int) -> float:
        """Return the seconds of silence that count as a stall where a whole response is due within `bound_s`.

        Each stall in a row before doubles it, so a deployment that is only slower than forecast can finish a response.
        """
        return float(max(self._rules.stall.least_s, bound_s) * 2 ** min(num_stalls, MAX_DOUBLINGS))

    def note_not_ready(self, now: float) -> None:
        """Release the requests that wait for a first byte after a probe found the deployment not ready.

        They stay while it still produces tokens. Called once a round of probes as long as that lasts.
        """
        self._look_for_progress(now)
        for attempt_watch in tuple(self._attempt_watches):
            if self._idle_s(attempt_watch, now) >= self._rules.stall.least_s:
                attempt_watch.leave()

    def _look_for_progress(self, now: float) -> bool:
        num_moved = sum(attempt_watch.has_moved(now) for attempt_watch in self._attempt_watches)
        if num_moved:
            self.note_progress(now)
        return num_moved > 0

    def sweep(self, now: float, usual_s: float = 0.0) -> None:
        """Eject the deployment when it is silent for longer than the patience with any request that it holds.

        Requests that show nothing since its last return may be at another process or machine. They raise no doubt and
        eject nothing; those that wait for a first token are moved all the same. An expired Retry-After ends here at the
        latest.

        Args:
            now: Monotonic seconds.
            usual_s: Usual duration of whole responses there; a shorter silence raises no doubt.
        """
        self.pushback_s(now)  # clears an expired one
        if self._look_for_progress(now):
            return
        held = [attempt_watch for attempt_watch in self._attempt_watches if self._is_current(attempt_watch)]
        is_doubtful = len(held) >= DOUBT_HELD and self._idle_s(held[0], now) >= max(DOUBT_S, usual_s)
        if is_doubtful is not self.is_doubtful:
            self._note_doubt(is_doubtful=is_doubtful)
        overdue = [attempt_watch for attempt_watch in self._attempt_watches if self._is_overdue(attempt_watch, now)]
        if not overdue:
            return
        ejection, current = self._ejection, [each for each in overdue if self._is_current(each)]
        if (ejection.is_in_rotation and current) or (
            not ejection.is_in_rotation and now >= ejection.until and any(each.is_probe for each in current)
        ):
            self.num_stalls += 1
            self._is_out_for_silence = True
            self._eject(now, FailureKind.STALLED)
        for attempt_watch in overdue:
            attempt_watch.leave()  # called again at the next sweep, where no other deployment can take it now

    def _restore(self, now: float) -> None:
        self._ejection.restore(now)
        for attempt_watch in self._attempt_watches:
            attempt_watch.note_return()

    def _is_current(self, attempt_watch: AttemptWatch) -> bool:
        """Return whether the exchange began or progressed after the deployment's last return."""
        return attempt_watch.active_at >= self._ejection.began_anew_at

    def _is_overdue(self, attempt_watch: AttemptWatch, now: float) -> bool:
        return attempt_watch.is_overdue(self._idle_s(attempt_watch, now))

    def _idle_s(self, attempt_watch: AttemptWatch, now: float) -> float:
        """Return the seconds that this exchange has waited without progress of the deployment."""
        return now - max(attempt_watch.began_at, self._last_progress_at)

    def _eject(self, now: float, kind: FailureKind) -> None:
        self._ejection.eject(now)
        self._note_ejected(now, kind)

    def _note_ejected(self, now: float, kind: FailureKind) -> None:
        self._note_fitness()
        self._on_ejected(kind, self._ejection.until - now)

    def _leave_alone_until(self, instant: float) -> None:
        self._pushback_until = instant
        self._note_fitness()

    def _note_doubt(self, *, is_doubtful: bool) -> None:
        self.is_doubtful = is_doubtful
        self._note_fitness()

    def _note_fitness(self) -> None:
        self._is_out_for_silence = self._is_out_for_silence and not self._ejection.is_in_rotation
        self.is_fit = self._ejection.is_in_rotation and not self._pushback_until
        self.is_usual = self.is_fit and not self.is_doubtful

    def check_integrity(self) -> None:
        """Check the invariants of an idle deployment; raises AssertionError."""
        assert self.is_fit == (self._ejection.is_in_rotation and not self._pushback_until)
        assert self.is_usual == (self.is_fit and not self.is_doubtful)
        assert not self._attempt_watches, f"{len(self._attempt_watches)} exchanges were never ended"
        assert self._tally.num_ejected >= 0
