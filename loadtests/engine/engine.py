"""The engine beside what it replaces: `transformers`, and itself without the feature in question.

Every comparison is made within one run, on the same cores with the same number of threads, its sides in turn, so that
both see the same machine. Parts are listed in `PARTS`; without a choice only the decode of the given checkpoint runs.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from loadtests.engine.batching import measure_batching
from loadtests.engine.chunked import measure_chunked
from loadtests.engine.decode import measure_bundled, measure_shape
from loadtests.engine.kv_use import measure_kv_use
from loadtests.engine.part import Part, Results, Setting
from loadtests.engine.prediction.equality import measure_equality
from loadtests.engine.prediction.prediction import measure_prediction
from loadtests.engine.prefix import measure_prefix
from loadtests.engine.speculation import measure_speculation
from loadtests.harness.card import Card

_DEFAULT_PART_S = 30.0
_QUANTIZATIONS = ("none", "int8", "int8_dynamic", "int4")


@dataclass(frozen=True, slots=True)
class _Entry:
    measure: Part
    weight: float
    """Its share of the time, beside the others."""


PARTS = {
    "decode": _Entry(measure_bundled, 1.5),
    "shape": _Entry(measure_shape, 3.0),
    "prefix": _Entry(measure_prefix, 1.0),
    "chunked": _Entry(measure_chunked, 1.0),
    "kv_use": _Entry(measure_kv_use, 0.7),
    "batching": _Entry(measure_batching, 1.0),
    "speculation": _Entry(measure_speculation, 1.5),
    "prediction": _Entry(measure_prediction, 4.0),
    "prediction_equality": _Entry(measure_equality, 1.0),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--all", action="store_true", help="every part (default: decode)")
    parser.add_argument("--only", choices=sorted(PARTS), action="append", help="this part; may be repeated")
    parser.add_argument("--seconds", type=float, help=f"of measuring in all (default {_DEFAULT_PART_S:g} a part)")
    parser.add_argument("--model", type=Path, default=Path("engine/bundled/models/penstock-large"), help="folder")
    parser.add_argument("--data", type=Path, help="folder with traces/azure2023_conv.csv.gz (default: a fit to it)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of torch, on every side")
    parser.add_argument(
        "--quantization",
        choices=_QUANTIZATIONS,
        default="none",
        help="of the engines' weights, where a part does not compare several (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of prompts and lengths (default %(default)s)")


async def run(options: argparse.Namespace) -> Card:
    """Measure the parts requested, one after the other."""
    names = list(PARTS) if options.all else options.only or ["decode"]
    seconds = _DEFAULT_PART_S * len(names) if options.seconds is None else options.seconds
    total_weight = sum(PARTS[name].weight for name in names)
    results: Results = {}
    notes: list[str] = []
    for name in names:
        setting = Setting(
            model=options.model.resolve(),
            threads=options.threads,
            seed=options.seed,
            data=options.data,
            seconds=seconds * PARTS[name].weight / total_weight,
            quantization=options.quantization,
        )
        finding = await PARTS[name].measure(setting)
        results |= finding.results
        notes += finding.notes
    return Card(
        bench="engine",
        arrivals="closed: batches, bursts or a fixed backlog; the sides of a ratio in turn",
        results=results | {"threads": options.threads, "model": options.model.resolve().name},
        notes=tuple(notes),
    )
