"""The worksheet of a plan: every value once, with its unit, and targets only where there are some."""

from __future__ import annotations

from gateway.capacity.plan import Targets
from gateway.capacity.worksheet import render_plan
from tests.gateway.capacity.test_plan import DEMAND, ENGINE, TARGETS, planned


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(name))


def test_it_reports_how_many_replicas_and_what_bounds_each() -> None:
    found = planned()
    text = render_plan(found, DEMAND, TARGETS, ENGINE)
    assert row(text, "replicas").split()[-1] == str(found.replicas)
    assert "one replica, at most (the sequences of a step (penstock engine --max-num-seqs))" in text
    assert "20.0 /s" in row(text, "requests")
    assert "0% still held" in row(text, "prompt ")


def test_targets_stand_beside_what_they_bound_and_are_left_out_where_there_are_none() -> None:
    assert "(target 1,000)" in render_plan(planned(), DEMAND, TARGETS, ENGINE)
    free = Targets(ttft_p95_s=None, tpot_s=None)
    assert "target" not in render_plan(planned(targets=free), DEMAND, free, ENGINE).replace("the target for", "")


def test_memory_in_bytes_is_reported_only_where_a_token_has_a_size() -> None:
    lines = [
        line for line in render_plan(planned(), DEMAND, TARGETS, ENGINE).splitlines() if "KV memory in use" in line
    ]
    assert len(lines) == 1
    assert "GB" not in lines[0]
