"""Documents of the admin pages, over this process and others that report."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.views.engine_facts import EngineFacts
from gateway.admin.views.live_state import LiveState
from gateway.admin.views.view import View
from gateway.telemetry.metrics import GatewayMetrics
from gateway.telemetry.window import WINDOWS_S
from tests.gateway.admin.views.test_live_state import deployment
from tests.gateway.admin.views.test_overview import lane


class World:
    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.metrics = GatewayMetrics()
        self.error: dict[str, Any] | None = None
        self.view = View(
            name="a",
            history=self.metrics.history(lambda: self.now),
            live=lambda: LiveState(lanes=(lane(),), deployments=(deployment(),), cache_entries=7),
            facts=lambda: {"policy": {"revision": "r7"}},
            engines=EngineFacts(lambda: (), lambda: 0.0),
            similar_error=lambda: self.error,
            wall=lambda: self.now,
        )


def test_every_document_has_the_time_the_facts_and_who_reports() -> None:
    view = World().view
    for document in (view.overview(60), view.deployments(60), view.load(60)):
        assert (document["at"], document["window_s"], document["policy"]) == (1_000_000.0, 60, {"revision": "r7"})
        assert document["replicas"] == {"names": ["a"], "lost": (), "is_alone": True, "is_store_lost": False}


def test_charts_are_made_only_where_they_are_wanted() -> None:
    view = World().view
    assert {"series", "step_s"} <= view.overview(60).keys()
    assert not {"series", "step_s"} & view.overview(60, with_series=False).keys()


def test_the_error_of_similar_answers_is_as_measured_now() -> None:
    world = World()
    assert world.view.overview(60)["cache"]["error"] is None
    world.error = {"route": "faq", "ratio": 0.01}
    assert world.view.overview(60)["cache"]["error"] == world.error


def test_the_report_for_others_covers_every_window() -> None:
    report = World().view.report()
    assert (report.name, report.revision) == ("a", "r7")
    assert set(report.windows) == set(report.series) == set(WINDOWS_S)
    assert report.live.cache_entries == 7


def test_each_deployment_is_shown_with_its_forecasts_and_without_an_engine_of_ours() -> None:
    (row,) = World().view.deployments(60)["deployments"]
    assert (row["id"], row["url"], row["engine"]) == ("small", "unix:/s", None)
    assert row["forecast"] == []


@pytest.mark.parametrize("window_s", WINDOWS_S)
def test_every_window_has_its_charts(window_s: int) -> None:
    document = World().view.overview(window_s)
    assert document["window_s"] == window_s
    assert document["step_s"] * max(len(document["series"]), 1) <= window_s + document["step_s"]
