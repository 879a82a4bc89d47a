"""One group's state over several processes."""

from __future__ import annotations

import msgspec

from gateway.admin.views.group_state import GroupState, worst_of
from gateway.admin.views.live_state import LiveState, added
from gateway.admin.views.overview import group_row
from tests.gateway.admin.views.test_overview import observed, totals

GOOD = GroupState(id="engine", source="list engines", num_members=2, num_left_out=0, age_s=0.5, error=None)
BAD = msgspec.structs.replace(GOOD, age_s=90.0, error="down")


def test_a_process_that_cannot_read_the_source_is_shown() -> None:
    assert worst_of([GOOD, BAD]) is BAD
    assert added([LiveState(groups=(GOOD,)), LiveState(groups=(BAD,))]).groups == (BAD,)


def test_traffic_is_that_of_all_members() -> None:
    seen = totals(
        counters={"requests_total": {("r", "engine", "completed"): 9.0, ("r", "engine", "failed"): 1.0}},
        histograms={"ttft_seconds": {("engine", "0-256", "miss"): observed(0.1, 9)}},
    )
    row = group_row(GOOD, seen)
    assert (row["requests"], row["failed"], row["ttft"]["count"], row["source"]) == (10, 1, 9, "list engines")
