"""A evaluation as a terminal shows it: figures, intervals and widths, or the reason why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.cli.plans.evaluation import evaluation_lines


def measure(name: str, value: float, cap: float | None = None, why_not: str | None = None) -> dict[str, Any]:
    bounded = {"value": value, "low": value * 0.9, "high": value * 1.1}
    points = [
        {"n": n, "propensity": (0.0, value), "doubly_robust": (value - 1.0 / n, value + 1.0 / n)}
        for n in (20, 50, 100, 500, 1_000)
    ]
    estimate = {
        "num_requests": 1_000,
        "num_effective": 240.4,
        "unseen": 0.01,
        "propensity": bounded,
        "doubly_robust": bounded,
        "widths": points,
    }
    return {"name": name, "estimate": estimate, "cap": cap, "why_not": why_not}


def lines(*measures: dict[str, Any], why_not: str | None = None, differences: Sequence[dict[str, Any]] = ()) -> str:
    side = {"num_requests": 1_000, "why_not": why_not, "measures": list(measures)}
    estimates = {"recorded": {**side, "why_not": None}, "new": side, "differences": differences}
    return "\n".join(evaluation_lines(estimates))


def test_each_figure_has_its_interval_its_effective_size_and_its_widths() -> None:
    shown = lines(
        measure("good_ratio", 0.8), measure("ttft_ms", 50.0, cap=200.0), measure("cost_per_1k", 2.0, cap=0.01)
    )
    assert "evaluated by 1,000 recorded requests" in shown
    assert "    recorded     80.00% (72.00% to 88.00%)" in shown
    assert "    this policy  80.00% (72.00% to 88.00%) by the doubly robust estimate" in shown
    assert "50.0 ms (45.0 ms to 55.0 ms) by inverse propensity" in shown
    assert "1,000 requests weigh as 240; largest bias from what the records lack: 1.00%" in shown
    assert "largest bias from what the records lack: 2.0 ms" in shown
    assert "largest bias from what the records lack: 0.1" in shown
    assert "width by requests: 20: 10.00%, 50: 4.00%, 100: 2.00%, 500: 0.40%, 1,000: 0.20%" in shown


def test_what_the_records_cannot_tell_has_a_reason_and_no_figure() -> None:
    shown = lines(measure("good_ratio", 0.8, why_not="no overlap for 90.0% of what this policy would do"))
    assert "this policy  the records cannot tell: no overlap for 90.0%" in shown
    assert "by the doubly robust estimate" not in shown


def test_an_evaluation_that_was_not_made_has_a_reason() -> None:
    assert lines(why_not="50 requests are recorded; 200 are needed") == (
        "not evaluated: 50 requests are recorded; 200 are needed"
    )


def test_a_figure_without_an_estimate_is_only_a_reason() -> None:
    shown = lines({"name": "cost_per_1k", "estimate": None, "cap": None, "why_not": "small has no cost_per_mtok"})
    assert shown.splitlines()[-1] == "    this policy  the records cannot tell: small has no cost_per_mtok"


def test_a_difference_has_its_sign_and_both_intervals() -> None:
    robust, propensity = ({"value": value, "low": value - 1.0, "high": value + 2.0} for value in (-3.0, -2.5))
    found = {"num_requests": 900, "doubly_robust": robust, "propensity": propensity, "widths": ()}
    shown = lines(measure("ttft_ms", 50.0, cap=200.0), differences=[{"name": "ttft_ms", "difference": found}])
    assert "    difference   -3.0 ms (-4.0 ms to -1.0 ms) on the same requests, doubly robust" in shown
    assert "                 -2.5 ms (-3.5 ms to -0.5 ms) by inverse propensity" in shown
