"""The state of the store, as metrics and log lines."""

from __future__ import annotations

import io
import json
from typing import Any

from gateway.store.base import StoreLoss
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.store_watch import StoreWatch


class World:
    def __init__(self) -> None:
        self._stream = io.BytesIO()
        self.log = LogWriter(self._stream, wall_clock=lambda: 1.5)
        self.metrics = GatewayMetrics()

    @property
    def up(self) -> float:
        return self.metrics.store_up.labels().value

    def lines(self) -> list[dict[str, Any]]:
        self.log.flush()
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]


def test_a_store_is_down_until_it_is_reported_to_be_up_and_losing_it_is_a_warning() -> None:
    world = World()
    watch = StoreWatch(world.metrics, world.log, "redis://host")
    assert world.up == 0.0
    watch.is_up(True, "")
    assert world.up == 1.0
    watch.is_up(False, "refused")
    assert world.up == 0.0
    assert [(line["event"], line["level"], line.get("error")) for line in world.lines()] == [
        ("store_up", "info", None),
        ("store_lost", "warning", "refused"),
    ]


def test_a_side_connection_counts_its_operations_and_reports_nothing_of_the_store() -> None:
    world = World()
    StoreWatch(world.metrics, world.log, "redis://host").is_up(True, "")
    side = StoreWatch(world.metrics, world.log, "redis://host", is_side=True)
    side.is_up(False, "refused")
    side.failed("get", StoreLoss.SLOW)
    side.took("get", 0.002)
    assert world.up == 1.0
    assert world.metrics.store_failures.labels("get", StoreLoss.SLOW).value == 1.0
    assert sum(world.metrics.store_seconds.labels("get").counts) == 1
    assert len(world.lines()) == 1


def test_a_damaged_file_is_an_error_with_its_place() -> None:
    world = World()
    StoreWatch(world.metrics, world.log, "embedded:/run/s").damaged("put aside as s.damaged")
    (line,) = world.lines()
    assert (line["level"], line["store"], line["error"]) == ("error", "embedded:/run/s", "put aside as s.damaged")
