from __future__ import annotations

import io
import json

from loadtests.harness.card import Card


def test_the_last_line_is_one_json_object_with_results_and_conditions() -> None:
    out = io.StringIO()
    Card(bench="overhead", arrivals="closed loop", results={"added_p50_ms": 0.25}, notes=("a note",)).print_to(out)
    *card, last = out.getvalue().splitlines()
    record = json.loads(last)
    assert record["added_p50_ms"] == 0.25
    assert record["bench"] == "overhead"
    assert record["failed"] is None
    assert all(record[name] for name in ("commit", "hardware", "python", "arrivals"))
    assert any("a note" in line for line in card)


def test_a_failed_bench_reports_it_to_people_and_programs() -> None:
    out = io.StringIO()
    Card(bench="streams", arrivals="-", results={}, failed="2 streams lost").print_to(out)
    assert "FAILED: 2 streams lost" in out.getvalue()
    assert json.loads(out.getvalue().splitlines()[-1])["failed"] == "2 streams lost"
