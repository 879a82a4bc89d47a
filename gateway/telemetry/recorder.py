"""Recorder: the last step of every request, taken exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gateway.telemetry.logs.log import Level, LogWriter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.records.record import RequestLine, RequestRecord
from gateway.timeline import Outcome

_LEVELS: Final[dict[Outcome, Level]] = {
    Outcome.FAILED: "error",
    Outcome.UPSTREAM_FAILED: "warning",
    Outcome.UPSTREAM_TIMEOUT: "warning",
}
_ANSWERED: Final = frozenset({Outcome.COMPLETED, Outcome.CACHED})
_SAMPLE_DIGITS: Final = 8
_NOTHING: Final[dict[str, str | None]] = {"client_request_id": None, "detail": None, "model": "", "tenant": ""}


class Recorder:
    """Recorder of finished requests in metrics and log; neither waits."""

    __slots__ = ("_log", "_metrics", "_omitted", "_sample_ratio", "watchers")

    def __init__(
        self,
        metrics: GatewayMetrics,
        log: LogWriter,
        watchers: tuple[Callable[[RequestRecord], None], ...] = (),
        *,
        log_sample_ratio: float = 1.0,
        log_omitted: frozenset[str] = frozenset(),
    ) -> None:
        self._metrics = metrics
        self._log = log
        self._sample_ratio = log_sample_ratio
        self._omitted = log_omitted
        self.watchers = watchers
        """Callbacks for each finished request; none may wait or fail."""

    def record(self, record: RequestRecord) -> None:
        """Record a finished request; raises AssertionError when it has no outcome."""
        assert record.outcome is not None, "a request ended without an outcome"
        self._metrics.record(record)
        if self._sample_ratio >= 1.0 or record.outcome not in _ANSWERED or self._is_sampled(record.request_id):
            line = OmittedLine(record, self._omitted) if self._omitted else record
            self._log.write(line, _LEVELS.get(record.outcome, "info"))
        for watch in self.watchers:
            watch(record)

    def _is_sampled(self, request_id: str) -> bool:
        """Return whether the request is logged, from its id's random digits, so the choice is reproducible."""
        return int(request_id[-_SAMPLE_DIGITS:], 16) < self._sample_ratio * 16**_SAMPLE_DIGITS


class OmittedLine:
    """Record whose log line lacks the fields that the operator omits."""

    __slots__ = ("_omitted", "_record")

    def __init__(self, record: RequestRecord, omitted: frozenset[str]) -> None:
        self._record = record
        self._omitted = omitted

    def as_line(self, at: float) -> RequestLine:
        """Return the record's line without the omitted fields."""
        line = self._record.as_line(at)
        return msgspec.structs.replace(line, **{name: _NOTHING[name] for name in self._omitted})
