"""A plan's evaluation of an untried policy as lines for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

NAMES: Final = {
    "good_ratio": "good answers",
    "cost_per_1k": "cost of 1,000",
    "slow_ratio": "late first tokens",
    "ttft_ms": "time to first token",
    "wrong_hit_ratio": "wrong similar hits",
}
_SHOWN_WIDTHS: Final = 5

Json = Mapping[str, Any]


def evaluation_lines(estimates: Json) -> Iterator[str]:
    """Yield the figures of an evaluated policy beside the recorded ones, with intervals and their widths."""
    new, before = estimates["new"], {item["name"]: item for item in estimates["recorded"]["measures"]}
    differences = {item["name"]: item["difference"] for item in estimates["differences"]}
    if new["why_not"] is not None:
        yield f"not evaluated: {new['why_not']}"
        return
    yield f"evaluated by {new['num_requests']:,} recorded requests; each 95 % interval holds however often it is read:"
    yield "  times are those at the recorded load: a policy that moves many requests changes the load itself"
    for item in new["measures"]:
        name, found = item["name"], item["estimate"]
        yield f"  {NAMES[name]}"
        if (was := (before.get(name) or {}).get("estimate")) is not None:
            yield f"    recorded     {_bounded(name, was['doubly_robust'])}"
        if item["why_not"] is not None:
            yield f"    this policy  the records cannot tell: {item['why_not']}"
        if found is None:
            continue
        if item["why_not"] is None:
            yield f"    this policy  {_bounded(name, found['doubly_robust'])} by the doubly robust estimate"
            yield f"                 {_bounded(name, found['propensity'])} by inverse propensity"
        if (difference := differences.get(name)) is not None:
            robust, propensity = (_bounded(name, difference[side], "+") for side in ("doubly_robust", "propensity"))
            yield f"    difference   {robust} on the same requests, doubly robust"
            yield f"                 {propensity} by inverse propensity"
        yield (
            f"    {found['num_requests']:,} requests weigh as {found['num_effective']:,.0f}; "
            f"largest bias from what the records lack: {_figure(name, found['unseen'] * _unit(item))}"
        )
        yield f"    width by requests: {', '.join(_widths(name, found['widths']))}"


def _unit(item: Json) -> float:
    """Return what an outcome of 1 stands for."""
    cap = 1.0 if item["cap"] is None else float(item["cap"])
    return cap * 1000 if item["name"] == "cost_per_1k" else cap


def _widths(name: str, points: Sequence[Json]) -> Iterator[str]:
    """Yield the widths of doubly robust intervals at a few numbers of requests, the last included."""
    step = max(1, (len(points) - 1) // (_SHOWN_WIDTHS - 1))
    for point in points[::-1][::step][::-1]:
        low, high = point["doubly_robust"]
        yield f"{point['n']:,}: {_figure(name, high - low)}"


def _bounded(name: str, found: Json, sign: str = "") -> str:
    value = "nothing" if found["value"] is None else _figure(name, found["value"], sign)
    return f"{value} ({_figure(name, found['low'], sign)} to {_figure(name, found['high'], sign)})"


def _figure(name: str, value: float, sign: str = "") -> str:
    """Return a figure with its unit; `+` as `sign` shows that of positive values too."""
    if name == "ttft_ms":
        return f"{value:{sign},.1f} ms"
    return f"{value:{sign}.4g}" if name == "cost_per_1k" else f"{value:{sign}.2%}"
