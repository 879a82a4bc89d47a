"""`penstock policy train --max-loss`, `--large-share`: a route's cascade thresholds from the outcomes of its pair."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from zlib import crc32

import numpy as np

from gateway.cli.outcomes.quality_training import TrainingData, TrainingError
from routing_policies.quality.predictor import Predictor
from routing_policies.quality.training.cascade_choice import (
    FIRST_TOKENS,
    CascadeCase,
    CascadeChoice,
    CascadeGoal,
    case_of,
    choose_cascade,
)

NUM_FOLDS: Final = 3


def choose_thresholds(data: TrainingData, goal: CascadeGoal) -> CascadeChoice:
    """Return the thresholds for a goal; the predictor is fitted once without each third of the prompts.

    Raises:
        TrainingError: Too few outcomes have log probabilities, or the strong model has no score.
    """
    if not any(line.outcomes[data.pair[1]] for line in data.lines):
        raise TrainingError(f"{data.pair[1]} has no score above 0, so no share of it can be lost")
    cases = [case for fold in range(NUM_FOLDS) for case in _cases(data, fold)]
    for fold in range(NUM_FOLDS):
        if not any(case.large for case in cases if case.fold != fold):
            raise TrainingError(
                f"{len(cases)} outcomes have the log probabilities of the weak model's first {FIRST_TOKENS} tokens, or "
                f"of a whole shorter answer, and too few of them a score of {data.pair[1]}; give more such outcomes"
            )
    return choose_cascade(cases, goal)


def _cases(data: TrainingData, fold: int) -> Iterator[CascadeCase]:
    """Yield the cases of one fold, by a fit on the others; equal prompts are in one fold."""
    in_fold = np.array([crc32(line.as_prompt().text.encode()) % NUM_FOLDS == fold for line in data.lines])
    model = data.fit(np.flatnonzero(~in_fold))
    if not model.checkpoints:
        num = sum(bool(outcome.odds) for outcome in data.outcomes)
        raise TrainingError(
            f"thresholds of a cascade need log probabilities of the weak model's first tokens: {num} outcomes have "
            "them, 200 are enough; leave --max-loss and --large-share out, or give --data lines with `logprobs`"
        )
    predictor, (weak, strong) = Predictor(model), data.pair
    for row in np.flatnonzero(in_fold).tolist():
        line, outcome = data.lines[row], data.outcomes[row]
        prediction = predictor.assess(line.as_prompt(), None if data.vectors is None else data.vectors[row]).prediction
        scores = line.outcomes[weak], line.outcomes[strong]
        if outcome.odds and len(outcome.odds) >= min(outcome.num_tokens, FIRST_TOKENS):
            # The others do not say where a cascade would have handed over.
            yield case_of(outcome, prediction, model.checkpoints, scores=scores, fold=fold)


def select_of(choice: CascadeChoice) -> str:
    """Return the thresholds as the part of a route's `select`, in YAML."""
    rule = choice.rule
    cascade = f"{{first_tokens: {FIRST_TOKENS}, skip_below: {rule.skip_below:g}, calibrate: false}}"
    return f"policy: cascade, min_quality: {rule.min_quality:g}, cascade: {cascade}"


def choice_report(choice: CascadeChoice) -> dict[str, Any]:
    """Return the figures of a choice."""
    return {
        "min_quality": choice.rule.min_quality,
        "skip_below": choice.rule.skip_below,
        "first_tokens": FIRST_TOKENS,
        "num_held_out": choice.num_cases,
        "large_share": round(choice.large_share, 4),
        "loss": round(choice.loss, 4),
        "loss_interval": [round(choice.loss_low, 4), round(choice.loss_high, 4)],
        "random_loss": round(choice.random_loss, 4),
    }


def choice_lines(choice: CascadeChoice, goal: CascadeGoal) -> Iterator[str]:
    """Yield the choice in words: the thresholds, what they cost, and where they may fall short of the goal."""
    low, high = 100 * choice.loss_low, 100 * choice.loss_high
    yield f"thresholds for the route, beside its candidates: select: {{{select_of(choice)}, …}}"
    yield (
        f"held out: {choice.large_share:.1%} large calls lose {choice.loss:.1%} of the large model's score "
        f"(95 %: {low:.1f} to {high:.1f} %); random ones would lose {choice.random_loss:.1%}"
    )
    if goal.max_loss is not None and choice.loss_high > goal.max_loss:
        yield f"warning: the loss may exceed {goal.max_loss:.1%}; more outcomes narrow the interval"
    if goal.large_share is not None and choice.large_share > goal.large_share + 0.05:
        yield "warning: more large calls than stated; unknown prompts go to the large model in any case"
