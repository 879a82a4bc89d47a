"""The overview's arithmetic, on literal counts."""

from __future__ import annotations

from gateway.admin.views.live_state import LaneState, LiveState
from gateway.admin.views.overview import Charts, overview
from gateway.telemetry.instruments import SECONDS_BUCKETS
from gateway.telemetry.window import Observed, Totals


def observed(seconds: float, count: int) -> Observed:
    counts = [0] * (len(SECONDS_BUCKETS) + 1)
    counts[next(i for i, bound in enumerate(SECONDS_BUCKETS) if seconds <= bound)] = count
    return tuple(counts), seconds * count


def lane(**fields: object) -> LaneState:
    values = {
        "id": "interactive",
        "weight": 8.0,
        "waiting": 2,
        "max_queue": 10,
        "predicted_wait_s": 0.5,
        "drained_per_s": 4.0,
        "ttft_slo_ms": 600.0,
        "tpot_slo_ms": None,
        "on_overload": ("shed",),
        **fields,
    }
    return LaneState(**values)  # type: ignore[arg-type]


def totals(**fields: object) -> Totals:
    return Totals(**{"since": 0.0, "until": 60.0, "counters": {}, "histograms": {}, **fields})  # type: ignore[arg-type]


def test_answers_from_the_cache_are_apart_from_prompt_lengths() -> None:
    seen = totals(
        histograms={
            "ttft_seconds": {
                ("small", "0-256", "miss"): observed(0.1, 90),
                ("large", "0-256", "miss"): observed(0.1, 10),
                ("small", "4k-16k", "bypass"): observed(2.5, 5),
                ("cache", "0-256", "hit_exact"): observed(0.001, 50),
            }
        }
    )
    rows = overview(seen, LiveState())["ttft"]
    assert [(row["bucket"], row["count"]) for row in rows] == [
        *(("0-256", 100), ("4k-16k", 5)),
        *(("from cache", 50), ("all", 155)),
    ]


def test_refusals_count_against_the_target_of_all_requests() -> None:
    seen = totals(
        counters={
            "slo_total": {("interactive", "ttft", "met"): 90.0, ("interactive", "ttft", "missed"): 10.0},
            "shed_total": {("interactive", "deadline"): 80.0, ("interactive", "queue_full"): 20.0},
        }
    )
    found = overview(seen, LiveState(lanes=(lane(),)))
    assert found["slo"][0]["ratio"] == 0.9
    assert found["slo"][0]["ratio_of_all"] == 0.45
    assert [row["reason"] for row in found["shed"]] == ["deadline", "queue_full"]


def test_bounds_of_quotes_are_shown_by_kind_with_the_share_that_was_met() -> None:
    counts = {
        ("first_token", "met"): 19.0,
        ("first_token", "missed"): 1.0,
        ("price", "unknown"): 2.0,
        ("x", "met"): 0.0,
    }
    found = overview(totals(counters={"quoted_bounds_total": counts}), LiveState())
    assert found["quotes"] == [
        {"bound": "first_token", "met": 19, "missed": 1, "unknown": 0, "ratio": 0.95},
        {"bound": "price", "met": 0, "missed": 0, "unknown": 2, "ratio": None},
    ]


def test_shares_of_stages_are_of_all_time_in_the_order_of_the_way() -> None:
    seen = totals(
        histograms={"stage_seconds": {("relay",): observed(1.0, 3), ("read",): observed(0.5, 2), ("queue",): ((), 0.0)}}
    )
    assert [(row["stage"], row["share"]) for row in overview(seen, LiveState())["stages"]][:1] == [("read", 0.25)]


def test_shared_answers_are_not_counted_as_exact_hits_too() -> None:
    seen = totals(
        counters={
            "cache_lookups_total": {
                ("hit_exact", "exact"): 6.0,
                ("hit_exact", "shared"): 2.0,
                ("miss", "new"): 8.0,
                ("bypass", "no_store"): 4.0,
            }
        }
    )
    cache = overview(seen, LiveState())["cache"]
    assert (cache["hit_exact"], cache["shared"], cache["miss"], cache["bypassed"]) == (6, 2, 8, 4)
    assert cache["hit_ratio"] == 0.5


def test_a_series_has_rates_by_outcome() -> None:
    step = totals(until=5.0, counters={"requests_total": {("a", "b", "completed"): 10.0, ("a", "", "shed"): 5.0}})
    (point,) = Charts().points([step])
    assert (point["completed"], point["shed"], point["p50_ms"]) == (2.0, 1.0, None)
