"""Dashboards: what is shipped is what the script writes, and every panel can be read."""

from __future__ import annotations

import pytest

from deploy.grafana.__main__ import FOLDER, rendered
from deploy.grafana.dashboards import DASHBOARDS
from deploy.grafana.panels import COLUMNS, Dashboard, Panel, Query
from tests.deploy.promql import dashboard_queries, parse


def test_shipped_dashboards_are_those_the_script_writes() -> None:
    written = rendered()
    assert set(FOLDER.iterdir()) == set(written)
    for path, text in written.items():
        assert path.read_text() == text, f"{path.name} is out of date: python -m deploy.grafana"


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.uid)
def test_panels_neither_overlap_nor_leave_the_page(board: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board.as_json()["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + 8)}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= COLUMNS
        taken |= cells


def test_every_query_parses() -> None:
    for where, expr in dashboard_queries():
        try:
            parse(expr)
        except ValueError as error:
            raise AssertionError(f"{where}: {error}") from error


def test_a_panel_with_a_limit_draws_it() -> None:
    panel = Panel(title="Lag", queries=[Query("up")], help="", limit=0.5)
    drawn = Dashboard(uid="x", title="x", panels=[panel]).as_json()["panels"][0]["fieldConfig"]["defaults"]
    assert drawn["thresholds"]["steps"][-1]["value"] == 0.5
    assert drawn["custom"]["thresholdsStyle"] == {"mode": "line"}
