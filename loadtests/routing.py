"""Routing between a small and a large model: how much of the large one's quality, for how few of its calls.

On the bundled pair's own tasks both models answer held-out prompts (other seeds than the shipped predictor was trained
on), and the shipped predictor, its cascade and fifty fixed preambles are judged by what came of it. With `--data` two
public sets of outcomes are split at random and by leaving out one category at a time, and the predictor is compared
with simple routers fitted on the same rows. APGR is that of RouteLLM (2024): 0.5 is a random order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from gateway.quality_training import Line, read_lines
from gateway.routing.quality_files import bundled_models
from loadtests import routing_public as public
from loadtests.card import Card, Value
from loadtests.preambles import preambles
from loadtests.routing_curve import Scores
from routing_policies.quality.cascade import Inquiry
from routing_policies.quality.features import features_of
from routing_policies.quality.model import PairModel, Prediction
from routing_policies.quality.predictor import Predictor
from routing_policies.quality.prompt import Prompt
from routing_policies.quality.training import Trainer

_SMALL: Final = "penstock-small"
_LARGE: Final = "penstock-large"
_SEED: Final = 977
"""Not one of those that the shipped predictor was trained on."""
MIN_QUALITY: Final = 0.9
CASCADE_QUALITY: Final = 0.93
FIRST_TOKENS: Final = 16
SKIP_BELOW: Final = 0.3
"""As in the preset `small-first`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this bench."""
    parser.add_argument("--samples", type=int, default=40, help="prompts per task and difficulty (default %(default)s)")
    parser.add_argument("--seed", type=int, default=_SEED, help="of the prompts (default %(default)s)")
    parser.add_argument("--outcomes", type=Path, help="file of the pair's outcomes: used if it is there, else written")
    parser.add_argument("--data", type=Path, help="folder of evaluation data: judge its public outcomes too")
    parser.add_argument("--vectors", type=Path, help="folder that keeps the embeddings of --data between runs")
    parser.add_argument("--splits", type=int, default=3, help="random splits of each public set (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="of the public sets only the random splits")


async def run(options: argparse.Namespace) -> Card:
    """Measure."""
    if options.data is not None and not (options.data / "routing").is_dir():
        raise SystemExit(f"{options.data}: has no folder routing; --data names the folder of evaluation data")
    with tempfile.TemporaryDirectory() as folder:
        path = options.outcomes or Path(folder) / "outcomes.jsonl"
        if not path.exists():
            await _make_outcomes(path, options.samples, options.seed)
        (model,) = (one for one in bundled_models() if (one.weak, one.strong) == (_SMALL, _LARGE))
        results, notes = _bundled(model, list(read_lines([path])))
        if options.data is not None:
            results |= await asyncio.to_thread(_public, options, Path(folder), model, notes)
    return Card(bench="routing", arrivals="offline, one prompt after the other", results=results, notes=tuple(notes))


async def _make_outcomes(path: Path, samples: int, seed: int) -> None:
    command = ("-m", "engine.bundled.outcomes", "--split", "test", "--samples", str(samples), "--seed", str(seed))
    process = await asyncio.create_subprocess_exec(sys.executable, *command, "--out", str(path))
    if await process.wait() != 0:
        raise SystemExit("the bundled models' outcomes could not be made; see above")


def _bundled(model: PairModel, lines: Sequence[Line]) -> tuple[dict[str, Value], list[str]]:
    scores = Scores(*(np.array([line.outcomes[name] for line in lines]) for name in (_SMALL, _LARGE)))
    predictor = Predictor(model)
    prompts = [line.as_prompt() for line in lines]
    predictions = [predictor.judge(prompt).prediction for prompt in prompts]
    chances = np.array([found.chance for found in predictions])
    is_large = chances < MIN_QUALITY
    lengths = np.array([float(prompt.num_chars) for prompt in prompts])
    results: dict[str, Value] = {
        "num_prompts": len(lines),
        "small_accuracy": float(scores.small.mean()),
        "large_accuracy": float(scores.large.mean()),
        "apgr": scores.apgr(-chances),
        "apgr_interval_of_random": scores.interval(),
        "apgr_of_prompt_length": scores.apgr(lengths),
        "accuracy_ratio": scores.ratio_of(is_large),
        "large_share": float(is_large.mean()),
        "accuracy_ratio_at_half": scores.ratio_at(-chances, 0.5),
        **_cascade(model, lines, predictions, scores),
        **_attacks(model, prompts),
        "decision_us_p50": _decision_us(predictor, prompts),
    }
    return results, [f"{category}: {line}" for category, line in _by_task(lines, is_large).items()]


def _cascade(
    model: PairModel, lines: Sequence[Line], predictions: Sequence[Prediction], scores: Scores
) -> dict[str, Value]:
    """What the preset's cascade would do, token by token."""
    is_large, waited, small_tokens = [], [], 0
    for line, found in zip(lines, predictions, strict=True):
        if found.chance < SKIP_BELOW:
            is_large.append(True)
            waited.append(0)
            continue
        num_read, answer = _inquire(model, line, found)
        is_large.append(answer == "hand_over")
        waited.append(num_read - 1)  # the first token is waited for in any case
        small_tokens += num_read if answer == "hand_over" else 0
    chosen = np.array(is_large)
    return {
        "cascade_accuracy_ratio": scores.ratio_of(chosen),
        "cascade_large_share": float(chosen.mean()),
        "cascade_tokens_waited_p50": float(np.median(waited)),
        "cascade_tokens_waited_p90": float(np.quantile(waited, 0.9)),
        "cascade_tokens_left_per_request": small_tokens / len(lines),
    }


def _inquire(model: PairModel, line: Line, found: Prediction) -> tuple[int, str]:
    inquiry = Inquiry(CASCADE_QUALITY, FIRST_TOKENS, found.logit, model.checkpoints)
    outcome = line.as_outcome(_SMALL, _LARGE)
    for num_read in range(1, len(outcome.odds) + 1):
        answer = inquiry.ask(outcome.odds[:num_read], is_whole=num_read >= outcome.num_tokens)
        if answer is not None:
            return num_read, answer
    return len(outcome.odds), "hand_over"


def _attacks(model: PairModel, prompts: Sequence[Prompt]) -> dict[str, Value]:
    """How much each fixed preamble before every prompt changes the large model's share, in points."""
    usual = _large_share(model, prompts)
    changes = [
        100 * (_large_share(model, [_behind(preamble, prompt) for prompt in prompts]) - usual)
        for preamble in preambles()
    ]
    return {
        "attack_preambles": len(changes),
        "attack_change_points_worst": max(changes, key=abs),
        "attack_change_points_mean": float(np.mean(np.abs(changes))),
    }


def _large_share(model: PairModel, prompts: Sequence[Prompt]) -> float:
    predictor = Predictor(model)
    return float(np.mean([predictor.judge(prompt).prediction.chance < MIN_QUALITY for prompt in prompts]))


def _behind(preamble: str, prompt: Prompt) -> Prompt:
    num_chars = prompt.num_chars + len(preamble)
    return msgspec.structs.replace(prompt, text=preamble + prompt.text, num_chars=num_chars)


def _decision_us(predictor: Predictor, prompts: Sequence[Prompt]) -> float:
    """CPU time of one decision by features alone."""
    took = []
    for prompt in prompts:
        began = time.process_time_ns()
        predictor.judge(prompt)
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
        results |= _random_splits(data, options.splits, notes)
        if not options.quick:
            results |= _left_out(data, notes)
    in_place, whole = public.learned_in_place(sets, base, seed=1)
    results |= {"in_place_apgr": in_place, "in_place_apgr_whole": whole, "in_place_labels": public.AUDITED}
    results["embedded_decision_us_p50"] = _embedded_us(sets[0])
    return results


def _random_splits(data: public.DataSet, num_splits: int, notes: list[str]) -> dict[str, Value]:
    found: dict[str, list[float]] = {}
    for seed in range(num_splits):
        train, test = public.random_split(data, seed)
        scores = data.scores.take(test)
        for router, need in public.needs(data, train, test).items():
            found.setdefault(router, []).append(scores.apgr(need))
    return _summary(f"{data.name}_random", found, notes)


def _left_out(data: public.DataSet, notes: list[str]) -> dict[str, Value]:
    found: dict[str, list[float]] = {}
    worst = 1.0
    for category, train, test in public.categories_left_out(data):
        scores = data.scores.take(test)
        apgrs = {router: scores.apgr(need) for router, need in public.needs(data, train, test).items()}
        worst = min(worst, apgrs["penstock"] - (0.5 - scores.interval()))
        shown = ", ".join(f"{router} {value:.3f}" for router, value in apgrs.items())
        notes.append(f"{data.name} without {category} (random 0.5 ± {scores.interval():.3f}): {shown}")
        for router, value in apgrs.items():
            found.setdefault(router, []).append(value)
    results = _summary(f"{data.name}_left_out", found, notes)
    results[f"{data.name}_left_out_worst_above_random_low"] = worst
    return results


def _summary(name: str, found: dict[str, list[float]], notes: list[str]) -> dict[str, Value]:
    means = {router: float(np.mean(values)) for router, values in found.items()}
    notes.append(f"{name}: " + json.dumps({router: round(value, 4) for router, value in means.items()}))
    own = means.pop("penstock")
    best = max(means, key=lambda router: means[router])
    return {f"{name}_apgr": own, f"{name}_best_baseline": best, f"{name}_best_baseline_apgr": means[best]}


def _embedded_us(data: public.DataSet) -> float:
    """CPU time of one decision with the embedding at hand."""
    rows = np.arange(min(2000, len(data.texts)))
    model = Trainer(data.outcomes(rows), vectors=data.vectors[rows]).fit(
        weak="s", strong="l", trained_on=data.name, encoder="e"
    )
    took = []
    for row in rows[:500]:
        began = time.process_time_ns()
        model.predict(features_of(Prompt(data.texts[row], num_chars=len(data.texts[row]))), data.vectors[row])
        took.append(time.process_time_ns() - began)
    return float(np.median(took)) / 1000
