"""LoggingBridge: messages that libraries and the HTTP edge send through `logging`, as lines of the gateway's log."""

from __future__ import annotations

import logging
import traceback

from gateway.telemetry.logs.log import Level, LogWriter

_LEVELS: tuple[tuple[int, Level], ...] = (
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
)


class LoggingBridge(logging.Handler):
    """Logging handler that queues each record and returns."""

    def __init__(self, log: LogWriter) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record, traceback included."""
        level: Level = next((name for bound, name in _LEVELS if record.levelno >= bound), "debug")
        values = {"logger": record.name, "message": record.getMessage()}
        if record.exc_info and record.exc_info[1] is not None:
            values["error"] = "".join(traceback.format_exception(record.exc_info[1]))
        self._log.event("log", level=level, **values)
