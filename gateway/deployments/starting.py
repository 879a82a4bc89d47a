"""StartProgress: progress of a deployment's start, by its own report, and the forecast of its end.

A start is assumed to resemble the last one: its remaining phases, or its whole duration where no phases are reported. A
start that is late is forecast to take as long again as it is late.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.deployments.load_report import WARMING_STATES

FIRST_START_S: Final = 10.0
"""Seconds assumed for a start where none was observed."""
LEAST_S: Final = 0.25
"""Resolution of the forecast in seconds, about the interval of the probes."""
FRESH_S: Final = 3.0
"""Seconds for which the last report of a starting deployment is valid."""
_COMING: Final = WARMING_STATES | {"down"}
"""States of an engine that will become ready; `down` holds between the loss of a core and the next one's start."""
_TOTALS: Final = frozenset({"recovery"})
"""Phases that span others."""


class StartPhase(msgspec.Struct, frozen=True):
    """Completed phase of a start."""

    name: str
    seconds: float


class StartReport(msgspec.Struct, frozen=True):
    """Fields of a response from `/readyz` about the start; others are ignored."""

    state: str = ""
    phases: tuple[StartPhase, ...] = ()

    @property
    def is_coming(self) -> bool:
        """True if it will become ready without intervention."""
        return self.state in _COMING


_decode: Final = msgspec.json.Decoder(StartReport).decode
_SILENT: Final = StartReport()


def parse_start(body: bytes) -> StartReport:
    """Return the report in a probe's response, an empty one when it is not an engine's."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _SILENT


class StartProgress:
    """Starts of one deployment; instants are monotonic seconds and are passed in."""

    __slots__ = ("_began_at", "_done", "_heard_at", "_moved_at", "_phases", "_usual_s")

    def __init__(self) -> None:
        self._began_at: float | None = None
        """Begin of the current start; None without one."""
        self._heard_at = 0.0
        self._done: tuple[StartPhase, ...] = ()
        self._moved_at = 0.0
        """Instant at which the last completed phase ended."""
        self._phases: tuple[StartPhase, ...] = ()
        """Phases of the last start that completed."""
        self._usual_s = FIRST_START_S

    def note_waiting(self, now: float, report: StartReport) -> None:
        """Record a probe that found it not ready."""
        if not report.is_coming:
            self._began_at = None
            return
        if self._began_at is None:
            self._began_at = now - sum(phase.seconds for phase in report.phases)
            self._moved_at = now
        elif len(report.phases) != len(self._done):
            self._moved_at = now
        self._done = report.phases
        self._heard_at = now

    def note_ready(self, now: float, report: StartReport) -> None:
        """Record that it is ready; the next start is assumed to resemble this one."""
        if self._began_at is not None:
            self._usual_s = now - self._began_at
            self._phases = tuple(phase for phase in report.phases if phase.name not in _TOTALS)
            self._began_at = None

    def note_gone(self) -> None:
        """Record that no server responds there."""
        self._began_at = None

    def left_s(self, now: float) -> float | None:
        """Return the forecast seconds until it is ready; None when it is not starting."""
        if self._began_at is None or now - self._heard_at > FRESH_S:
            return None
        expected_s = self._expected_s(now, self._began_at)
        return max(abs(expected_s), LEAST_S)

    def _expected_s(self, now: float, began_at: float) -> float:
        """Return the seconds left if the start resembles the last one; negative when it is late."""
        if not self._phases:
            return self._usual_s - (now - began_at)
        done = {phase.name for phase in self._done}
        to_come_s = sum(phase.seconds for phase in self._phases if phase.name not in done)
        return to_come_s - (now - self._moved_at)
