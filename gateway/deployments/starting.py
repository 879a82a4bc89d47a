"""StartProgress: how far the start of a deployment is, by its own word, and when it is forecast to be ready.

A start is taken to be like the last one: what its phases took that are still to come, or the whole of it where phases
are not told. One that is late already is forecast to need as long again as it is late.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.deployments.load_report import WARMING_STATES

FIRST_START_S: Final = 10.0
"""What a start is taken to need where none was seen."""
LEAST_S: Final = 0.25
"""Nothing is forecast more exactly: readiness is asked for about so often."""
FRESH_S: Final = 3.0
"""For so long the last word of a deployment that starts is believed."""
_COMING: Final = WARMING_STATES | {"down"}
"""An engine that lost its core says `down` until the next one starts."""
_TOTALS: Final = frozenset({"recovery"})
"""Phases that span others."""


class StartPhase(msgspec.Struct, frozen=True):
    """A phase of a start that is done."""

    name: str
    seconds: float


class StartReport(msgspec.Struct, frozen=True):
    """The part of an answer to `/readyz` that tells about the start; other fields are ignored."""

    state: str = ""
    phases: tuple[StartPhase, ...] = ()

    @property
    def is_coming(self) -> bool:
        """Whether it will be ready without anybody's doing."""
        return self.state in _COMING


_decode: Final = msgspec.json.Decoder(StartReport).decode
_SILENT: Final = StartReport()


def parse_start(body: bytes) -> StartReport:
    """What a probe's answer says; nothing, where it is not what an engine answers."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _SILENT


class StartProgress:
    """Of one deployment, over all its starts. Instants are monotonic seconds and are passed in."""

    __slots__ = ("_began_at", "_done", "_heard_at", "_moved_at", "_phases", "_usual_s")

    def __init__(self) -> None:
        self._began_at: float | None = None
        """None: it is not starting."""
        self._heard_at = 0.0
        self._done: tuple[StartPhase, ...] = ()
        self._moved_at = 0.0
        """When the last of those that are done was."""
        self._phases: tuple[StartPhase, ...] = ()
        """Of the last start that came to its end."""
        self._usual_s = FIRST_START_S

    def note_waiting(self, now: float, report: StartReport) -> None:
        """It is not ready, and says this."""
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
        """It is ready: the next start will be like this one."""
        if self._began_at is not None:
            self._usual_s = now - self._began_at
            self._phases = tuple(phase for phase in report.phases if phase.name not in _TOTALS)
            self._began_at = None

    def note_gone(self) -> None:
        """Nobody answers there."""
        self._began_at = None

    def left_s(self, now: float) -> float | None:
        """Seconds until it is ready; None when it is not starting, as far as is known."""
        if self._began_at is None or now - self._heard_at > FRESH_S:
            return None
        expected_s = self._expected_s(now, self._began_at)
        return max(abs(expected_s), LEAST_S)

    def _expected_s(self, now: float, began_at: float) -> float:
        """As the last start went; negative when that is over."""
        if not self._phases:
            return self._usual_s - (now - began_at)
        done = {phase.name for phase in self._done}
        to_come_s = sum(phase.seconds for phase in self._phases if phase.name not in done)
        return to_come_s - (now - self._moved_at)
