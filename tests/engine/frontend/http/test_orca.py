"""The load header that other proxies read."""

from __future__ import annotations

import msgspec
import pytest

from engine.frontend.http.orca import load_header
from tests.engine.frontend.fake_core import IDLE_LOAD, LOAD


def named(header: str) -> dict[str, float]:
    kind, _, metrics = header.partition(" ")
    assert kind == "TEXT"
    pairs = [metric.split("=") for metric in metrics.split(", ")]
    return {name.removeprefix("named_metrics."): float(value) for name, value in pairs}


def test_the_header_has_the_share_of_blocks_in_use_and_both_queues() -> None:
    load = msgspec.structs.replace(LOAD, num_waiting=7)
    assert named(load_header(load)) == {
        "kv_cache_utilization": 0.25,
        "num_requests_waiting": 7.0,
        "num_requests_running": 1.0,
    }


@pytest.mark.parametrize(("num_free", "used"), [(0, 1.0), (100, 0.0), (33, 0.67)])
def test_utilization_is_between_nothing_and_one(num_free: int, used: float) -> None:
    assert named(load_header(msgspec.structs.replace(LOAD, num_blocks_free=num_free)))["kv_cache_utilization"] == used


def test_before_the_core_has_a_pool_nothing_is_used() -> None:
    assert named(load_header(IDLE_LOAD))["kv_cache_utilization"] == 0.0
