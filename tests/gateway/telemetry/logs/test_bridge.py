"""Messages of libraries as lines of the gateway's log."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from gateway.telemetry.logs.bridge import LoggingBridge
from gateway.telemetry.logs.log import Level, LogWriter


def reported(emit: Any, level: Level = "debug") -> list[dict[str, Any]]:
    stream = io.BytesIO()
    log = LogWriter(stream, level=level, wall_clock=lambda: 1.5)
    logger = logging.Logger("library")
    logger.addHandler(LoggingBridge(log))
    emit(logger)
    log.flush()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("number", "level"),
    [(logging.CRITICAL, "error"), (logging.ERROR, "error"), (logging.WARNING, "warning"), (25, "info"), (5, "debug")],
)
def test_each_level_has_its_word(number: int, level: str) -> None:
    (line,) = reported(lambda logger: logger.log(number, "took %d s", 3))
    assert (line["level"], line["event"], line["logger"], line["message"]) == (level, "log", "library", "took 3 s")


def test_an_exception_is_reported_with_its_traceback_and_without_secrets() -> None:
    def emit(logger: logging.Logger) -> None:
        try:
            raise ValueError("key sk-penstock-0123456789abcdef is bad")
        except ValueError:
            logger.exception("failed")

    (line,) = reported(emit)
    assert "ValueError" in line["error"]
    assert "0123456789abcdef" not in line["error"]


def test_what_is_below_the_logs_level_is_left_out() -> None:
    assert reported(lambda logger: logger.info("hello"), level="warning") == []
