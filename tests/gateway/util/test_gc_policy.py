"""Whole collections wait until nobody does, and not for ever."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gateway.util.gc_policy import AT_LATEST, AT_LATEST_S, LOOK_EVERY_S, WHEN_IDLE, GcPolicy


class Counted:
    """A process that is idle or not, and its collections."""

    def __init__(self) -> None:
        self.is_idle = True
        self.num_collections = 0
        self.collector = GcPolicy(lambda: self.is_idle, collect=self._collect)

    def _collect(self) -> int:
        self.num_collections += 1
        return 0


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_an_idle_process_collects_once_there_was_some_traffic() -> None:
    counted = Counted()
    counted.collector.look(WHEN_IDLE - 1)
    assert counted.num_collections == 0
    counted.collector.look(WHEN_IDLE)
    assert counted.num_collections == 1


def test_a_busy_process_collects_only_when_it_was_busy_for_very_long() -> None:
    counted = Counted()
    counted.is_idle = False
    counted.collector.look(AT_LATEST - 1)
    assert counted.num_collections == 0
    counted.collector.look(AT_LATEST)
    assert counted.num_collections == 1


def test_light_but_steady_load_delays_a_collection_by_minutes_and_not_by_hours() -> None:
    counted = Counted()
    counted.is_idle = False
    for _ in range(round(AT_LATEST_S / LOOK_EVERY_S) - 1):
        counted.collector.look(1)
    assert counted.num_collections == 0
    counted.collector.look(1)
    assert counted.num_collections == 1
    counted.collector.look(1)
    assert counted.num_collections == 1


def test_a_process_without_any_traffic_collects_nothing() -> None:
    counted = Counted()
    for _ in range(2 * round(AT_LATEST_S / LOOK_EVERY_S)):
        counted.collector.look(0)
    assert counted.num_collections == 0


@pytest.mark.usefixtures("thresholds")
def test_the_interpreter_never_walks_everything_by_itself() -> None:
    Counted().collector.start()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold()[2] > 1_000_000_000
