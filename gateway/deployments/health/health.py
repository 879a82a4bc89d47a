"""DeploymentHealth: whether a deployment does its work, judged by what comes out of it and not by its open port."""

from __future__ import annotations

import math
from collections.abc import Callable

from gateway.deployments.health.attempt_watch import AttemptWatch
from gateway.deployments.health.ejection import Ejection, EjectionRules, EjectionTally, FailureKind

MAX_PUSHBACK_S = 60.0
"""Longest time a deployment's own Retry-After keeps it out."""

DOUBT_S = 1.0
"""Silence of a deployment that holds several requests, after which others are preferred."""
DOUBT_HELD = 4
"""Requests that it must hold for that: fewer are no stampede."""
MAX_DOUBLINGS = 6
"""Of the patience with plain answers, one for each stall in a row."""

EjectionHook = Callable[[FailureKind, float], None]
"""Told why a deployment was taken out and for how many seconds."""


def _ignore(kind: FailureKind, backoff_s: float) -> None:
    """The hook of a deployment whose ejections nobody counts."""


class DeploymentHealth:
    """One deployment's health; it is told the time. `sweep` has to be called a few times a second."""

    __slots__ = (
        "_ejection",
        "_is_out_for_silence",
        "_last_progress_at",
        "_on_ejected",
        "_pushback_until",
        "_rules",
        "_tally",
        "_vigils",
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
        self._vigils: dict[AttemptWatch, None] = {}
        self._last_progress_at = -math.inf
        self._pushback_until = 0.0
        self.is_fit = True
        """Neither ejected nor asked to be left alone."""
        self.is_doubtful = False
        """It holds several requests and has been silent for a while: others are preferred, where there are any."""
        self.is_usual = True
        """Fit and not doubtful: the usual case, one look; then nothing else need be asked."""
        self.num_stalls = 0
        """Stalls, of trials as well, since anything came from there."""
        self._is_out_for_silence = False
        """It is ejected, and what it did not do was the reason."""

    # What the router asks.

    def is_ejected(self, now: float) -> bool:
        """Whether requests should go elsewhere; False for the one that may try it after its back-off."""
        return not self._ejection.is_in_rotation and not self._ejection.may_probe(now)

    def may_probe(self, now: float) -> bool:
        """Whether it is ejected, its back-off is over, and one request may try it."""
        return self._ejection.may_probe(now)

    def returns_at(self) -> float:
        """When its back-off ends; only for one that is ejected."""
        return self._ejection.until

    def pushback_s(self, now: float) -> float:
        """Seconds for which it still asks to be left alone, else 0.0."""
        if now >= self._pushback_until:
            self._leave_alone_until(0.0)
            return 0.0
        return self._pushback_until - now

    @property
    def num_under_way(self) -> int:
        """Exchanges that are being watched."""
        return len(self._vigils)

    # What the forwarder tells.

    def begin(self, now: float) -> AttemptWatch:
        """A request is about to be sent; the vigil must be ended. It is the probe when one is due."""
        is_probe = not self._ejection.is_in_rotation and self._ejection.begin_probe(now)
        vigil = AttemptWatch(self, now, is_probe=is_probe)
        self._vigils[vigil] = None
        return vigil

    def leave(self, vigil: AttemptWatch) -> None:
        """For the vigil itself: it is over."""
        del self._vigils[vigil]
        if vigil.is_probe:
            self._ejection.end_probe()

    def note_progress(self, now: float) -> None:
        """A token came, of whatever request, or the engine said that it computes."""
        self._last_progress_at = now
        self.num_stalls = 0
        if self.is_doubtful:
            self._note_doubt(is_doubtful=False)

    @property
    def has_answered(self) -> bool:
        """Whether anything ever came from there."""
        return self._last_progress_at > -math.inf

    def is_suspect(self, now: float) -> bool:
        """Whether it is out of rotation, or holds requests and has been silent for the shortest patience."""
        if not self._ejection.is_in_rotation:
            return True
        return bool(self._vigils) and self._silent_s(now) >= self._rules.stall.least_s

    def quiet_s(self, now: float) -> float:
        """Seconds since the last token that was noticed."""
        return now - self._last_progress_at

    def note_success(self, now: float, *, since: float | None = None, is_probe: bool = False) -> None:
        """An exchange went well. One begun (`since`) after the ejection, or the probe, ends the ejection; of one for
        silence any answer is the refutation."""
        self.note_progress(now)
        ejection = self._ejection
        if ejection.is_in_rotation:
            ejection.succeed(now)
        elif is_probe or self._is_out_for_silence or (since is not None and since >= ejection.ejected_at):
            ejection.restore(now)
            self._note_fitness()

    def note_failure(self, now: float, kind: FailureKind, *, is_probe: bool = False) -> None:
        """An exchange failed; may eject. A failed probe ejects again, for longer."""
        if is_probe and not self._ejection.is_in_rotation:
            self._eject(now, kind)
        elif self._ejection.fail(now):
            self._note_ejected(now, kind)

    def note_pushback(self, now: float, retry_after_s: float) -> None:
        """It asked to be left alone for a while (429 with Retry-After): no failure, but no use trying either."""
        self._leave_alone_until(max(self._pushback_until, now + min(retry_after_s, MAX_PUSHBACK_S)))

    def reset(self, now: float) -> None:
        """Another process answers at its address now: what the last one did is forgotten."""
        self._ejection.restore(now)
        self._leave_alone_until(0.0)

    # Liveness by token progress.

    def patience_s(self, expected_s: float) -> float:
        """The silence that is too long where a token was expected within `expected_s`."""
        return max(self._rules.stall.least_s, self._rules.stall.after * expected_s)

    @property
    def least_patience_s(self) -> float:
        """No shorter silence is too long."""
        return self._rules.stall.least_s

    def plain_patience_s(self, bound_s: float, num_stalls: int) -> float:
        """The silence that is too long where a plain answer should be whole within `bound_s`. Each stall in a row that
        came before doubles it, so that a deployment which is only slower than forecast gets its first answer out."""
        return float(max(self._rules.stall.least_s, bound_s) * 2 ** min(num_stalls, MAX_DOUBLINGS))

    def note_not_ready(self, now: float) -> None:
        """A probe found it not ready: requests that wait for a first byte leave, unless it gives tokens all the same.

        Called once a round of probes for as long as that lasts.
        """
        self._look_for_progress(now)
        for vigil in tuple(self._vigils):
            if self._quiet_s(vigil, now) >= self._rules.stall.least_s:
                vigil.leave()

    def _look_for_progress(self, now: float) -> bool:
        num_moved = sum(vigil.has_moved() for vigil in self._vigils)
        if num_moved:
            self.note_progress(now)
        return num_moved > 0

    def sweep(self, now: float, usual_s: float = 0.0) -> None:
        """Eject the deployment when it holds requests and has been silent for longer than any of them would bear.

        `usual_s` is what plain answers take there: shorter silence is no reason for doubt. A wish to be left alone
        whose time is over ends here at the latest.
        """
        self.pushback_s(now)  # forgets one that is over
        if self._look_for_progress(now):
            return
        is_doubtful = len(self._vigils) >= DOUBT_HELD and self._silent_s(now) >= max(DOUBT_S, usual_s)
        if is_doubtful is not self.is_doubtful:
            self._note_doubt(is_doubtful=is_doubtful)
        overdue = [vigil for vigil in self._vigils if self._is_overdue(vigil, now)]
        if not overdue:
            return
        ejection = self._ejection
        if ejection.is_in_rotation or (now >= ejection.until and any(vigil.is_probe for vigil in overdue)):
            self.num_stalls += 1
            self._is_out_for_silence = True
            self._eject(now, FailureKind.STALLED)
        for vigil in overdue:
            vigil.leave()  # again at the next look, where nobody else can take it now

    def _is_overdue(self, vigil: AttemptWatch, now: float) -> bool:
        return vigil.is_overdue(self._quiet_s(vigil, now))

    def _quiet_s(self, vigil: AttemptWatch, now: float) -> float:
        """How long this exchange has waited without a sign of life from the deployment."""
        return now - max(vigil.began_at, self._last_progress_at)

    def _silent_s(self, now: float) -> float:
        """The same for the exchange that has waited longest; only while there are any."""
        return self._quiet_s(next(iter(self._vigils)), now)

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
        """Raises AssertionError when an exchange is still watched; for idle moments."""
        assert self.is_fit == (self._ejection.is_in_rotation and not self._pushback_until)
        assert self.is_usual == (self.is_fit and not self.is_doubtful)
        assert not self._vigils, f"{len(self._vigils)} exchanges were never ended"
        assert self._tally.num_ejected >= 0
