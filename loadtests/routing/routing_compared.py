"""The predictor beside simple routers, on public outcomes: at random, and with a whole category left out."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

import numpy as np

from loadtests.harness.card import Value
from loadtests.routing.routing_curve import mean_and_half_width
from loadtests.routing.routing_public import DataSet, categories_left_out, needs, random_split, trained_on
from loadtests.routing.routing_set import interval_of
from routing_policies.quality.features import features_of
from routing_policies.quality.prompt import Prompt

_OURS = ("penstock", "penstock_untold", "penstock_no_embedding")


def random_splits(data: DataSet, num_splits: int, notes: list[str]) -> dict[str, Value]:
    """Means over splits."""
    found: dict[str, list[float]] = {}
    for seed in range(num_splits):
        train, test = random_split(data, seed)
        scores = data.scores.take(test)
        apgrs = {router: scores.apgr(need) for router, need in needs(data, train, test).items()}
        notes.append(f"{data.name} split {seed} (random 0.5 ± {scores.interval():.3f}): {_shown(apgrs)}")
        for router, value in apgrs.items():
            found.setdefault(router, []).append(value)
    return _summary(f"{data.name}_random", found, notes)


def left_out(data: DataSet, notes: list[str]) -> dict[str, Value]:
    """Return means over categories, each unknown to what is evaluated on it.

    They come with the distance of the worst one from the lower end of a random order's interval, and with the number of
    categories below prompt length less half the width of its interval.
    """
    found: dict[str, list[float]] = {}
    above: dict[str, list[float]] = {}
    num_below = dict.fromkeys(_OURS, 0)
    for category, train, test in categories_left_out(data):
        scores, need_by = data.scores.take(test), needs(data, train, test)
        apgrs = {router: scores.apgr(need) for router, need in need_by.items()}
        length, low, high = interval_of(scores, need_by["prompt_length"])
        notes.append(
            f"{data.name} without {category} (random 0.5 ± {scores.interval():.3f}, "
            f"length {low:.3f} to {high:.3f}): {_shown(apgrs)}"
        )
        for router, value in apgrs.items():
            found.setdefault(router, []).append(value)
            above.setdefault(router, []).append(value - (0.5 - scores.interval()))
        for router in _OURS:
            num_below[router] += apgrs[router] < length - (high - low) / 2
    name = f"{data.name}_left_out"
    results = _summary(name, found, notes) | {f"{name}_kinds": len(found[_OURS[0]])}
    for router in _OURS:
        results[f"{name}_{router}_worst_above_random_low"] = min(above[router])
        results[f"{name}_{router}_kinds_below_length"] = num_below[router]
    return results


def embedded_decision_us(data: DataSet) -> float:
    """CPU time of one decision with the embedding at hand, features included."""
    rows = np.arange(min(8192, len(data.texts)))
    model = trained_on(data, rows)
    took = []
    for row in rows[:500]:
        began = time.process_time_ns()
        model.predict(features_of(Prompt(data.texts[row], num_chars=len(data.texts[row]))), data.vectors[row])
        took.append(time.process_time_ns() - began)
    return float(np.median(took)) / 1000


def _summary(name: str, found: Mapping[str, Sequence[float]], notes: list[str]) -> dict[str, Value]:
    means = {router: float(np.mean(values)) for router, values in found.items()}
    notes.append(f"{name}: {_shown(means)}")
    best = max((router for router in means if router not in _OURS), key=means.__getitem__)
    results: dict[str, Value] = {f"{name}_best_baseline": best, f"{name}_best_baseline_apgr": means[best]}
    for router in _OURS:
        lead, width = mean_and_half_width(np.subtract(found[router], found[best]).tolist())
        results |= {
            f"{name}_{router}_apgr": means[router],
            f"{name}_{router}_lead": lead,
            f"{name}_{router}_lead_interval": width,
        }
    return results


def _shown(values: Mapping[str, float]) -> str:
    return json.dumps({router: round(value, 4) for router, value in values.items()})
