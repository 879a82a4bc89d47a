"""Evaluations of untried policies: whether the stated 95 % holds at every stopping time, and how wide intervals are.

Each run is a simulated log of a router that explores, with known outcomes of the policy that is evaluated, and of its
difference from the policy that ran. A run misses when its interval excludes the mean so far after any request. The
estimators are those of a plan, which is why this bench imports them.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

from loadtests.harness.card import Card, Value
from loadtests.routing.exploring_log import Misses, exploring_log, misses
from routing_policies.off_policy.estimates import ALPHA, PolicyDifference, PolicyEstimate, estimate, estimate_difference

_WARM: Final = 100
_WIDTHS: Final = (1_000, 10_000, 50_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--runs", type=int, default=2_000, help="simulated logs of each kind (default %(default)s)")
    parser.add_argument("--requests", type=int, default=1_000, help="in each of them (default %(default)s)")
    parser.add_argument("--ratio", type=float, default=0.05, help="share that explores (default %(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="that compute (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first log (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    results: dict[str, Value] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for name, drifts in (("steady", False), ("drifting", True)):
            one = partial(_misses_of, num=options.requests, ratio=options.ratio, drifts=drifts)
            seeds = range(options.seed, options.seed + options.runs)
            found = list(pool.map(one, seeds, chunksize=max(1, options.runs // (8 * options.processes))))
            for side, missed in zip(Misses._fields, zip(*found, strict=True), strict=True):
                results[f"{name}_{side}_coverage"] = 1.0 - sum(missed) / options.runs
    for num in _WIDTHS:
        log = exploring_log(options.seed, num + _WARM, ratio=options.ratio)
        kinds: dict[str, PolicyEstimate | PolicyDifference] = {
            "": estimate(log.series, _WARM),
            "ran_": estimate(log.ran_series, _WARM),
            "difference_": estimate_difference(log.series, log.ran_series, _WARM),
        }
        for name, evaluated in kinds.items():
            results[f"{name}propensity_width_{num}"] = evaluated.propensity.high - evaluated.propensity.low
            results[f"{name}doubly_robust_width_{num}"] = evaluated.doubly_robust.high - evaluated.doubly_robust.low
    low = min(value for name, value in results.items() if name.endswith("coverage") and isinstance(value, float))
    return Card(
        bench="off_policy",
        arrivals=f"{options.runs} logs of each kind, {options.requests} requests, {options.ratio:g} of them drawn",
        results=results,
        notes=("coverage: runs whose interval held the mean so far after every single request",),
        failed=None if low >= 1.0 - ALPHA else f"a coverage of {low:.3f} is below {1.0 - ALPHA:g}",
    )


def _misses_of(seed: int, num: int, ratio: float, drifts: bool) -> Misses:
    return misses(exploring_log(seed, num + _WARM, ratio=ratio, drifts=drifts), _WARM)
