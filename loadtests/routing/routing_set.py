"""Routers on a user's own outcomes: each prompt is predicted by a fit that never saw it, or never saw its kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from gateway.cli.outcomes.quality_training import MIN_PROMPTS, Line, TrainingError, embedded, read_lines, texts_of
from loadtests.harness.card import Value
from loadtests.routing.routing_curve import Floats, Scores
from loadtests.routing.routing_public import MIN_CATEGORY, MIN_GAP, DataSet, Rows, categories_left_out, needs
from routing_policies.quality.features import features_of

NUM_FOLDS: Final = 5
NUM_RESAMPLES: Final = 200
FEW_APART: Final = 30
"""Number of prompts with different scores of the models below which resampled prompts show too little of the error."""
_SEED: Final = 1


def set_results(
    paths: Sequence[Path], names: tuple[str | None, str | None], encoder_folder: Path, notes: list[str]
) -> dict[str, Value]:
    """Return the APGR of each router with its 95 % bootstrap interval.

    Args:
        paths: Files in the format of `penstock policy train --data`.
        names: Names of the weak and the strong model; None where the files have outcomes of two models only.
        encoder_folder: Folder for the encoder's graph.
        notes: List that lines about kinds that were left out are added to.

    Raises:
        SystemExit: The files are of no use; the message has the reason.
    """
    data = _read(paths, names, encoder_folder)
    num_apart = int((data.scores.large != data.scores.small).sum())
    if num_apart < FEW_APART:
        notes.append(f"the models differ on {num_apart} prompts alone, so the intervals are too narrow")
    rows, found = _cross_validated(data)
    results: dict[str, Value] = {
        "num_prompts": len(rows),
        "small_score": float(data.scores.small.mean()),
        "large_score": float(data.scores.large.mean()),
    }
    for router, need in found.items():
        apgr, low, high = interval_of(data.scores.take(rows), need)
        results |= {f"{router}_apgr": apgr, f"{router}_apgr_low": low, f"{router}_apgr_high": high}
    return results | _left_out(data, notes)


def interval_of(scores: Scores, need: Floats) -> tuple[float, float, float]:
    """Return APGR, and the ends of its 95 % interval over resampled prompts."""
    rng = np.random.default_rng(_SEED)
    found = []
    for _ in range(NUM_RESAMPLES):
        rows = rng.integers(0, len(need), len(need))
        sample = scores.take(rows)
        if sample.gap > 0.0:
            found.append(sample.apgr(need[rows]))
    low, high = np.percentile(found, [2.5, 97.5])
    return scores.apgr(need), float(low), float(high)


def _left_out(data: DataSet, notes: list[str]) -> dict[str, Value]:
    """Return for how many kinds, each left out of the training, a predictor is below length less its interval."""
    below = {"penstock": 0, "penstock_untold": 0}
    num = 0
    notes += _never_left_out(data)
    for kind, train, test in categories_left_out(data):
        if not kind:
            continue
        if len(train) < MIN_PROMPTS or not _has_both_outcomes(data.scores.take(train)):
            notes.append(f"{kind} was not left out, because the other prompts teach too little")
            continue
        scores, found = data.scores.take(test), needs(data, train, test)
        apgr, low, high = interval_of(scores, found["prompt_length"])
        ours = {router: scores.apgr(found[router]) for router in below}
        for router, value in ours.items():
            below[router] += value < apgr - (high - low) / 2
        num += 1
        notes.append(
            f"without {kind}: prompt_length {apgr:.3f} ({low:.3f} to {high:.3f}), "
            + ", ".join(f"{router} {value:.3f}" for router, value in ours.items())
        )
    if not num:
        return {}
    return {"kinds_left_out": num, **{f"{router}_kinds_below_length": count for router, count in below.items()}}


def _never_left_out(data: DataSet) -> Iterator[str]:
    """Yield a line for each reason why kinds are not left out, with their names."""
    small, equal = [], []
    for kind in sorted(set(data.categories) - {""}):
        scores = data.scores.take(np.flatnonzero(data.categories == kind))
        if len(scores.small) < MIN_CATEGORY:
            small.append(f"{kind} ({len(scores.small)})")
        elif scores.gap < MIN_GAP:
            equal.append(f"{kind} ({scores.gap:.3f})")
    if small:
        yield f"not left out, with fewer than {MIN_CATEGORY} prompts: {', '.join(small)}"
    if equal:
        yield f"not left out, because the models differ by less than {MIN_GAP}: {', '.join(equal)}"


def _has_both_outcomes(scores: Scores) -> bool:
    return len(set(scores.large > scores.small)) == 2


def _cross_validated(data: DataSet) -> tuple[Rows, Mapping[str, Floats]]:
    """Return the rows of all folds, and the need of each by each router; needs are ranks inside their fold."""
    rows: list[Rows] = []
    found: dict[str, list[Floats]] = {}
    for train, test in _folds(data.texts):
        rows.append(test)
        for router, need in needs(data, train, test).items():
            found.setdefault(router, []).append(_ranks(need))
    return np.concatenate(rows), {router: np.concatenate(parts) for router, parts in found.items()}


def _folds(texts: Sequence[str]) -> Iterator[tuple[Rows, Rows]]:
    """Yield the rows to train on and to test on; equal prompts are in one fold."""
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    order = np.random.default_rng(_SEED).permutation(len(places))
    fold = np.array([order[places[text]] % NUM_FOLDS for text in texts])
    for number in range(NUM_FOLDS):
        yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def _ranks(need: Floats) -> Floats:
    """Return the rank of each need in [0, 1]; equal needs have one rank."""
    values, place = np.unique(need, return_inverse=True)
    return np.asarray(place / max(len(values) - 1, 1), dtype=np.float64)


def _read(paths: Sequence[Path], names: tuple[str | None, str | None], encoder_folder: Path) -> DataSet:
    try:
        lines = list(read_lines(paths))
        weak, strong = _pair(lines, names)
        lines = [line for line in lines if weak in line.outcomes and strong in line.outcomes]
        num = len(set(texts_of(lines)))
        if num < MIN_PROMPTS:
            raise TrainingError(f"{num} different prompts have outcomes of both, at least {MIN_PROMPTS} are needed")
        scores = Scores(*(np.array([line.outcomes[name] for line in lines]) for name in (weak, strong)))
        if scores.gap <= 0.0:
            raise TrainingError(f"{strong} is no better than {weak} on these prompts, so there is no gap to recover")
        if not _has_both_outcomes(scores):
            raise TrainingError(f"{strong} is better than {weak} on every prompt, so there is nothing to choose")
        vectors, _ = embedded(texts_of(lines), encoder_folder)
    except TrainingError as error:
        raise SystemExit(f"--set: {error}") from error
    prompts = [line.as_prompt() for line in lines]
    categories = np.array([line.category for line in lines])
    features = [features_of(prompt) for prompt in prompts]
    return DataSet("set", [prompt.text for prompt in prompts], features, categories, vectors, scores)


def _pair(lines: Sequence[Line], names: tuple[str | None, str | None]) -> tuple[str, str]:
    """Return the named pair, or the only two models, the one with the lower mean first. Raises TrainingError."""
    weak, strong = names
    if weak is not None and strong is not None:
        return weak, strong
    if weak is not None or strong is not None:
        raise TrainingError("name both --weak and --strong, or neither")
    known = sorted({name for line in lines for name in line.outcomes})
    if len(known) != 2:
        shown = ", ".join(known) or "no model"
        raise TrainingError(f"name --weak and --strong; the files have outcomes of {shown}")
    means = [np.mean([line.outcomes[name] for line in lines if name in line.outcomes]) for name in known]
    return (known[0], known[1]) if means[0] <= means[1] else (known[1], known[0])
