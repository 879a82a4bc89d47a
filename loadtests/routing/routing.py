"""Routing between a small and a large model: how much of the large one's quality, for how few of its calls.

On the bundled pair's own tasks both models answer prompts in wordings that the shipped predictor never saw, and it, its
cascade and fifty fixed preambles are measured by what came of it. With `--data` two public sets of outcomes are split
at random and by leaving out one category at a time, and the predictor is compared with simple routers fitted on the
same rows; then it learns in place on a mix of both. With `--set` the same routers are compared on outcomes of one's
own. APGR is that of RouteLLM (2024): 0.5 is a random order."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from gateway.cli.outcomes.quality_training import Line, read_lines
from gateway.routing.quality_files import bundled_models
from loadtests.harness.card import Card, Value
from loadtests.routing import routing_public as public
from loadtests.routing.outcomes import make_outcomes
from loadtests.routing.preambles import familiar_preambles, preambles
from loadtests.routing.routing_cascade import cascade_results, cases_of
from loadtests.routing.routing_compared import embedded_decision_us, left_out, random_splits
from loadtests.routing.routing_curve import Scores
from loadtests.routing.routing_in_place import in_place_results
from loadtests.routing.routing_set import set_results
from routing_policies.quality.model import PairModel
from routing_policies.quality.preamble import opening_of
from routing_policies.quality.predictor import Predictor
from routing_policies.quality.prompt import Prompt

_SMALL: Final = "penstock-small"
_LARGE: Final = "penstock-large"
_SEED: Final = 977
MIN_QUALITY: Final = 0.93
"""As in the preset `small-first`."""
_PARTS: Final = ("bundled", "random", "left_out", "in_place")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--samples", type=int, default=40, help="prompts per task and difficulty (default %(default)s)")
    parser.add_argument("--seed", type=int, default=_SEED, help="of the prompts (default %(default)s)")
    parser.add_argument("--outcomes", type=Path, help="file of the pair's outcomes: used if it is there, else written")
    parser.add_argument(
        "--set",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="compare routers on these outcomes alone",
    )
    parser.add_argument("--weak", metavar="MODEL", help="with --set: the smaller model, where there are more than two")
    parser.add_argument("--strong", metavar="MODEL", help="with --set: the one it is compared with")
    parser.add_argument("--data", type=Path, help="folder of evaluation data: evaluate its public outcomes too")
    parser.add_argument("--vectors", type=Path, help="folder that keeps the embeddings of --data between runs")
    parser.add_argument("--splits", type=int, default=5, help="random splits, streams in place (default %(default)s)")
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS, help="only these (default: all)")
    parser.add_argument("--sets", nargs="+", choices=public.SETS, default=public.SETS, help="only these public sets")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    if options.data is not None and not (options.data / "routing").is_dir():
        raise SystemExit(f"{options.data}: has no folder routing; --data names the folder of evaluation data")
    results: dict[str, Value] = {}
    notes: list[str] = []
    (model,) = (one for one in bundled_models() if (one.weak, one.strong) == (_SMALL, _LARGE))
    with tempfile.TemporaryDirectory() as folder:
        if options.set:
            pair = (options.weak, options.strong)
            results = await asyncio.to_thread(set_results, options.set, pair, Path(folder) / "encoder", notes)
            return _card(results, notes)
        if "bundled" in options.parts:
            path = options.outcomes or Path(folder) / "outcomes.jsonl"
            if not path.exists():
                await make_outcomes(path, options.samples, options.seed)
            results |= _bundled(model, list(read_lines([path])), notes)
        if options.data is not None:
            results |= await asyncio.to_thread(_public, options, Path(folder), model, notes)
    return _card(results, notes)


def _card(results: dict[str, Value], notes: Sequence[str]) -> Card:
    return Card(bench="routing", arrivals="offline, one prompt after the other", results=results, notes=tuple(notes))


def _bundled(model: PairModel, lines: Sequence[Line], notes: list[str]) -> dict[str, Value]:
    scores = Scores(*(np.array([line.outcomes[name] for line in lines]) for name in (_SMALL, _LARGE)))
    predictor = Predictor(model)
    prompts = [line.as_prompt() for line in lines]
    predictions = [predictor.assess(prompt).prediction for prompt in prompts]
    probabilities = np.array([found.probability for found in predictions])
    is_large = probabilities < MIN_QUALITY
    lengths = np.array([float(prompt.num_chars) for prompt in prompts])
    cascade, note = cascade_results(model, cases_of(lines, predictions, _SMALL), scores)
    notes += [*(f"{category}: {line}" for category, line in _by_task(lines, is_large).items()), note]
    return {
        "num_prompts": len(lines),
        "small_accuracy": float(scores.small.mean()),
        "large_accuracy": float(scores.large.mean()),
        "apgr": scores.apgr(-probabilities),
        "apgr_interval_of_random": scores.interval(),
        "apgr_of_prompt_length": scores.apgr(lengths),
        "accuracy_ratio": scores.ratio_of(is_large),
        "large_share": float(is_large.mean()),
        "accuracy_ratio_at_half": scores.ratio_at(-probabilities, 0.5),
        **cascade,
        **_attacks(model, prompts),
        "decision_us_p50": _decision_us(predictor, prompts),
    }


def _attacks(model: PairModel, prompts: Sequence[Prompt]) -> dict[str, Value]:
    """How much each fixed preamble before every prompt changes the large model's share, in points; apart, those that
    begin as prompts of the training do."""
    usual = _large_share(model, prompts)
    learned = frozenset(model.openings)
    known = [prompt.text for prompt in prompts if opening_of(prompt.text.split()) in learned]
    results: dict[str, Value] = {}
    for name, texts in (
        ("attack", preambles()),
        ("familiar_attack", familiar_preambles(model.openings, known)),
    ):
        changes = [
            100 * (_large_share(model, [_behind(preamble, prompt) for prompt in prompts]) - usual) for preamble in texts
        ]
        results |= {
            f"{name}_preambles": len(changes),
            f"{name}_change_points_worst": max(changes, key=abs),
            f"{name}_change_points_mean": float(np.mean(np.abs(changes))),
        }
    return results


def _large_share(model: PairModel, prompts: Sequence[Prompt]) -> float:
    predictor = Predictor(model)
    return float(np.mean([predictor.assess(prompt).prediction.probability < MIN_QUALITY for prompt in prompts]))


def _behind(preamble: str, prompt: Prompt) -> Prompt:
    num_chars = prompt.num_chars + len(preamble)
    return msgspec.structs.replace(prompt, text=preamble + prompt.text, num_chars=num_chars)


def _decision_us(predictor: Predictor, prompts: Sequence[Prompt]) -> float:
    """CPU time of one decision by features alone."""
    took = []
    for prompt in prompts:
        began = time.process_time_ns()
        predictor.assess(prompt)
        took.append(time.process_time_ns() - began)
    return float(np.median(took)) / 1000


def _by_task(lines: Sequence[Line], is_large: Any) -> dict[str, str]:
    rows: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        rows.setdefault(line.category or "all", []).append(number)
    return {
        name: f"{len(found)} prompts, small {np.mean([lines[row].outcomes[_SMALL] for row in found]):.2f}, "
        f"large {np.mean([lines[row].outcomes[_LARGE] for row in found]):.2f}, "
        f"large share {is_large[found].mean():.2f}"
        for name, found in sorted(rows.items())
    }


def _public(options: argparse.Namespace, folder: Path, base: PairModel, notes: list[str]) -> dict[str, Value]:
    results: dict[str, Value] = {}
    sets = list(public.read_sets(options.data / "routing", folder / "encoder", options.vectors))
    for data in sets:
        if data.name in options.sets and "random" in options.parts:
            results |= random_splits(data, options.splits, notes)
        if data.name in options.sets and "left_out" in options.parts:
            results |= left_out(data, notes)
    if "in_place" in options.parts:
        results |= in_place_results(sets, base, options.splits)
    return results | {"embedded_decision_us_p50": embedded_decision_us(sets[0])}
