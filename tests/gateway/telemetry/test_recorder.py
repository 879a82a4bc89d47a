"""The last step of every request: counted once, logged by its outcome, and reported to watchers."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.recorder import Recorder
from gateway.telemetry.records.record import RequestRecord
from gateway.timeline import Outcome


def finished(outcome: Outcome | None, request_id: str = "req_" + "0" * 24) -> RequestRecord:
    record = RequestRecord(request_id, 0.0)
    record.outcome, record.tenant, record.model = outcome, "shop", "auto"
    return record


class World:
    def __init__(self, **options: Any) -> None:
        self._stream = io.BytesIO()
        self._log = LogWriter(self._stream, wall_clock=lambda: 1.5)
        self.seen: list[RequestRecord] = []
        self.recorder = Recorder(GatewayMetrics(), self._log, (self.seen.append,), **options)

    def lines(self) -> list[dict[str, Any]]:
        self._log.flush()
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]


def test_a_request_is_logged_and_reported_to_who_watches() -> None:
    world, record = World(), finished(Outcome.COMPLETED)
    world.recorder.record(record)
    assert [line["outcome"] for line in world.lines()] == ["completed"]
    assert world.seen == [record]


def test_a_request_without_an_outcome_is_a_fault_of_ours() -> None:
    with pytest.raises(AssertionError, match="without an outcome"):
        World().recorder.record(finished(None))


def test_sampling_leaves_out_answers_by_their_id_and_nothing_that_failed() -> None:
    world = World(log_sample_ratio=0.5)
    for digits in ("00000000", "7fffffff", "80000000", "ffffffff"):
        for outcome in (Outcome.COMPLETED, Outcome.FAILED, Outcome.SHED):
            world.recorder.record(finished(outcome, "req_" + "a" * 16 + digits))
    logged = [(line["outcome"], line["request_id"][-8:]) for line in world.lines()]
    assert [digits for outcome, digits in logged if outcome == "completed"] == ["00000000", "7fffffff"]
    assert len(logged) == 2 + 8
    assert len(world.seen) == 12, "who watches sees all of them"


def test_fields_that_the_operator_omits_are_in_no_line_and_still_in_the_record() -> None:
    world, record = World(log_omitted=frozenset({"tenant", "model"})), finished(Outcome.COMPLETED)
    world.recorder.record(record)
    (line,) = world.lines()
    assert not {"tenant", "model"} & line.keys()
    assert record.tenant == "shop"
