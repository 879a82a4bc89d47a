"""The overview page's document, computed from metrics and the live state. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from gateway.admin.views.group_state import GroupState
from gateway.admin.views.live_state import DeploymentState, LaneState, LiveState
from gateway.telemetry.metrics import LAST_PROMPT_BUCKET, PROMPT_BUCKETS
from gateway.telemetry.window import Observed, Totals, quantile_s
from gateway.timeline import STAGE_LABELS
from routing_policies.policy.members import group_of, is_member

SERIES_NAMES: Final = frozenset({"requests_total", "ttft_seconds"})
"""Families that the charts are drawn from."""

_BUCKETS: Final = (*(label for _, label in PROMPT_BUCKETS), LAST_PROMPT_BUCKET)
_FAILED: Final = ("upstream_failed", "upstream_timeout", "failed")
_ANSWERED: Final = ("completed", "cached")


def overview(totals: Totals, live: LiveState) -> dict[str, Any]:
    """Return everything but the charts."""
    outcomes = {outcome: int(count) for (outcome,), count in totals.by("requests_total", 2).items()}
    num = sum(outcomes.values())
    return {
        "since": totals.since,
        "until": totals.until,
        "requests": {
            "count": num,
            "per_s": num / totals.span_s if totals.span_s else 0.0,
            "answered": sum(outcomes.get(name, 0) for name in _ANSWERED),
            "failed": sum(outcomes.get(name, 0) for name in _FAILED),
            "outcomes": outcomes,
        },
        "slo": [row for lane in live.lanes for row in _slo(lane, totals)],
        "quotes": _quotes(totals),
        "ttft": _by_bucket(totals, "ttft_seconds"),
        "tpot": _by_bucket(totals, "tpot_seconds"),
        "stages": _stages(totals),
        "overhead": _spread(_sum(totals.histograms.get("overhead_seconds", {}).values())),
        "cache": _cache(totals, live),
        "shed": _shed(totals),
        "rejected": _rejected(totals),
        "queues": [_queue(lane, totals) for lane in live.lanes],
        "saved": _saved(totals, live),
        "events": {
            name: int(totals.total(f"{name}_total"))
            for name in ("retries", "hedges", "ejections", "client_retries", "panics")
        },
        "degraded": {step: int(count) for (step,), count in totals.by("degraded_total", 0).items()},
        "tokens": {
            "prompt": int(totals.total("prompt_tokens_total")),
            "completion": int(totals.total("completion_tokens_total")),
        },
        "deployments": [deployment_row(one, totals) for one in live.deployments],
    }


class Charts:
    """Rates by outcome and times to first token, one point a step. Drawn points are cached by the step."""

    def __init__(self) -> None:
        self._drawn: dict[int, tuple[Totals, dict[str, Any]]] = {}

    def points(self, steps: Sequence[Totals]) -> list[dict[str, Any]]:
        """Oldest first."""
        drawn = {id(step): self._drawn.get(id(step)) or (step, _point(step)) for step in steps if step.span_s > 0.0}
        self._drawn = drawn
        return [point for _, point in drawn.values()]


def deployment_row(one: DeploymentState, totals: Totals) -> dict[str, Any]:
    """Return one deployment's traffic in the window beside its state; a member's counts for its group alone."""
    is_counted = not is_member(one.id)
    outcomes = {
        outcome: int(count)
        for (deployment, outcome), count in totals.by("requests_total", 1, 2).items()
        if deployment == one.id
    }
    ttft = _sum(seen for (name, _), seen in totals.observed("ttft_seconds", 0, 2).items() if name == one.id)
    return {
        "id": one.id,
        "group": group_of(one.id),
        "model": one.model,
        "state": deployment_state(one),
        "in_flight": one.in_flight,
        "description": one.description,
        "limit": one.limit,
        "waiting": one.waiting,
        "requests": sum(outcomes.values()) if is_counted else None,
        "failed": sum(outcomes.get(name, 0) for name in _FAILED) if is_counted else None,
        "streams": _broken_streams(one.id, totals) if is_counted else None,
        "ttft": _spread(ttft),
        "forecast_error_p50": one.forecast_error_p50,
        "cost": totals.total("cost_total", {0: one.id}) if one.cost_per_mtok is not None and is_counted else None,
    }


def _broken_streams(deployment: str, totals: Totals) -> dict[str, int]:
    """Return the streams that broke at a deployment and were to be continued, by whether they were."""
    ends = {
        end: int(count) for (name, end), count in totals.by("resumed_streams_total", 0, 1).items() if name == deployment
    }
    num_resumed = ends.pop("resumed", 0)
    return {"resumed": num_resumed, "lost": sum(ends.values())}


def group_row(one: GroupState, totals: Totals) -> dict[str, Any]:
    """Return the traffic of a group's members in the window beside the state of their source."""
    outcomes = [(name, int(n)) for (group, name), n in totals.by("requests_total", 1, 2).items() if group == one.id]
    ttft = _sum(seen for (name, _), seen in totals.observed("ttft_seconds", 0, 2).items() if name == one.id)
    return {
        **msgspec.structs.asdict(one),
        "requests": sum(count for _, count in outcomes),
        "failed": sum(count for name, count in outcomes if name in _FAILED),
        "ttft": _spread(ttft),
        "cost": totals.total("cost_total", {0: one.id}),
    }


def deployment_state(one: DeploymentState) -> str:
    """Return the state of a deployment in one word."""
    if one.is_draining:
        return "draining"
    if one.has_left:
        return "leaving"
    if one.is_ejected:
        return "ejected"
    if one.is_ready:
        return "ready" if one.warm_up_share >= 1.0 else "warming"
    return "starting" if one.is_warming else "down"


def spread_by(totals: Totals, name: str, *positions: int) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return count, mean and quantiles of a histogram by some of its labels."""
    return {labels: _spread(seen) for labels, seen in totals.observed(name, *positions).items()}


def _slo(lane: LaneState, totals: Totals) -> Iterable[dict[str, Any]]:
    shed = int(totals.total("shed_total", {0: lane.id}))
    for target, limit_ms in (("ttft", lane.ttft_slo_ms), ("tpot", lane.tpot_slo_ms)):
        if limit_ms is None:
            continue
        met = int(totals.total("slo_total", {0: lane.id, 1: target, 2: "met"}))
        missed = int(totals.total("slo_total", {0: lane.id, 1: target, 2: "missed"}))
        yield {
            "lane": lane.id,
            "target": target,
            "limit_ms": limit_ms,
            "met": met,
            "missed": missed,
            "shed": shed,
            "ratio": met / (met + missed) if met + missed else None,
            "ratio_of_all": met / (met + missed + shed) if met + missed + shed else None,
        }


def _quotes(totals: Totals) -> list[dict[str, Any]]:
    """Return the bounds of quotes that requests sent back, by kind and result."""
    counts = {labels: int(count) for labels, count in totals.by("quoted_bounds_total", 0, 1).items()}
    rows = []
    for kind in dict.fromkeys(kind for kind, _ in counts):
        met, missed, unknown = (counts.get((kind, result), 0) for result in ("met", "missed", "unknown"))
        ratio = met / (met + missed) if met + missed else None
        rows.append({"bound": kind, "met": met, "missed": missed, "unknown": unknown, "ratio": ratio})
    return [row for row in rows if row["met"] or row["missed"] or row["unknown"]]


def _by_bucket(totals: Totals, name: str) -> list[dict[str, Any]]:
    """Upstream answers by prompt length, then those from the cache, then all."""
    fresh: dict[str, list[Observed]] = {}
    cached: list[Observed] = []
    for (bucket, cache), seen in totals.observed(name, 1, 2).items():
        if cache.startswith("hit"):
            cached.append(seen)
        else:
            fresh.setdefault(bucket, []).append(seen)
    rows = [{"bucket": bucket, **_spread(_sum(fresh[bucket]))} for bucket in _BUCKETS if bucket in fresh]
    if cached:
        rows.append({"bucket": "from cache", **_spread(_sum(cached))})
    if rows:
        rows.append({"bucket": "all", **_spread(_sum([*cached, *(seen for part in fresh.values() for seen in part)]))})
    return rows


def _stages(totals: Totals) -> list[dict[str, Any]]:
    """Return the stages in the order of a request's path; `share` is of the whole time."""
    found = {stage: seen for (stage,), seen in totals.observed("stage_seconds", 0).items()}
    whole = sum(seconds for _, seconds in found.values())
    return [
        {"stage": stage, "share": found[stage][1] / whole if whole else 0.0, **_spread(found[stage])}
        for stage in STAGE_LABELS
        if stage in found
    ]


def _cache(totals: Totals, live: LiveState) -> dict[str, Any]:
    results = {result: int(count) for (result,), count in totals.by("cache_lookups_total", 0).items()}
    num_lookups = sum(count for result, count in results.items() if result != "bypass")
    shared = int(totals.total("cache_lookups_total", {1: "shared"}))
    return {
        "lookups": num_lookups,
        "bypassed": results.get("bypass", 0),
        "hit_exact": results.get("hit_exact", 0) - shared,
        "hit_semantic": results.get("hit_semantic", 0),
        "shared": shared,
        "miss": results.get("miss", 0),
        "hit_ratio": (results.get("hit_exact", 0) + results.get("hit_semantic", 0)) / num_lookups
        if num_lookups
        else None,
        "reasons": [
            {"result": result, "reason": reason, "count": int(count)}
            for (result, reason), count in sorted(totals.by("cache_lookups_total", 0, 1).items())
        ],
        "entries": live.cache_entries,
        "bytes": live.cache_bytes,
        "num_routes": live.num_routes,
        "routes_without_cache": live.routes_without_cache,
    }


def _shed(totals: Totals) -> list[dict[str, Any]]:
    rows = [
        {"lane": lane, "reason": reason, "count": int(count)}
        for (lane, reason), count in totals.by("shed_total", 0, 1).items()
    ]
    return sorted(rows, key=lambda row: -int(row["count"]))


def _rejected(totals: Totals) -> list[dict[str, Any]]:
    """Return the requests that were wrong, by the status sent, the most frequent first."""
    rows = [{"status": int(status), "count": int(count)} for (status,), count in totals.by("rejected_total", 0).items()]
    return sorted((row for row in rows if row["count"]), key=lambda row: -row["count"])


def _queue(lane: LaneState, totals: Totals) -> dict[str, Any]:
    waits = _sum(seen for (name,), seen in totals.observed("queue_wait_seconds", 0).items() if name == lane.id)
    return {
        "lane": lane.id,
        "weight": lane.weight,
        "waiting": lane.waiting,
        "max_queue": lane.max_queue,
        "predicted_wait_ms": lane.predicted_wait_s * 1000,
        "drained_per_s": lane.drained_per_s,
        "ttft_slo_ms": lane.ttft_slo_ms,
        "tpot_slo_ms": lane.tpot_slo_ms,
        "on_overload": lane.on_overload,
        "shed": int(totals.total("shed_total", {0: lane.id})),
        "wait": _spread(waits),
    }


def _saved(totals: Totals, live: LiveState) -> dict[str, Any]:
    has_prices = any(one.cost_per_mtok is not None for one in live.deployments)
    return {
        "tokens": {source: int(count) for (source,), count in totals.by("saved_tokens_total", 0).items()},
        "cut_short": {source: int(count) for (source,), count in totals.by("cut_short_tokens_total", 0).items()},
        "has_prices": has_prices,
        "cost": dict(_plain(totals.by("saved_cost_total", 0))) if has_prices else None,
        "spent": totals.total("cost_total") if has_prices else None,
    }


def _point(step: Totals) -> dict[str, Any]:
    outcomes = {outcome: count / step.span_s for (outcome,), count in step.by("requests_total", 2).items()}
    seen = _sum(step.histograms.get("ttft_seconds", {}).values())
    return {
        "at": step.until,
        **{name: round(outcomes.get(name, 0.0), 3) for name in (*_ANSWERED, "shed", "rejected", "cancelled")},
        "failed": round(sum(outcomes.get(name, 0.0) for name in _FAILED), 3),
        **{name: _ms(quantile_s(seen[0], share)) for name, share in _QUANTILES},
    }


_QUANTILES: Final = (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99))


def _spread(seen: Observed) -> dict[str, Any]:
    counts, seconds = seen
    num = sum(counts)
    return {
        "count": num,
        "mean_ms": _ms(seconds / num) if num else None,
        **{name: _ms(quantile_s(counts, share)) for name, share in _QUANTILES},
    }


def _sum(parts: Iterable[Observed]) -> Observed:
    found = list(parts)
    if not found:
        return (), 0.0
    counts = tuple(map(sum, zip(*(counts for counts, _ in found), strict=True)))
    return counts, sum(seconds for _, seconds in found)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def _plain(sums: dict[tuple[str, ...], float]) -> Iterable[tuple[str, float]]:
    return ((labels[0], value) for labels, value in sums.items())
