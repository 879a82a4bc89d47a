"""Training a pair's quality predictor from a gateway's labels: `penstock policy train --from-gateway`.

The labels come from audits, shadows and feedback.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from gateway.cli.admin_client import AdminClient, open_client
from gateway.cli.commands import CommandError, settings
from gateway.cli.outcomes.quality_training import TrainingError
from gateway.config.checks import ConfigError
from gateway.routing.quality_files import load_predictors
from routing_policies.quality.hashing import hashed_model
from routing_policies.quality.model import FORMAT, PairModel
from routing_policies.quality.training.label import Label, Pair
from routing_policies.quality.training.learning import HELD_OUT, MIN_LABELS, learned_of, squared_error
from routing_policies.quality.training.trainer_import import TrainingUnavailable, import_trainer


def train_from_gateway(options: argparse.Namespace) -> tuple[PairModel, dict[str, Any]]:
    """Fit a pair's coefficients to the labels of a gateway.

    Returns:
        The coefficients, and the errors of the new and the former ones on labels that were held out.

    Raises:
        CommandError: The settings are wrong or the admin API refuses.
        TrainingError: The labels are too few or all alike, or scikit-learn is not installed.
    """
    try:
        known = load_predictors(settings(options).policy.quality_dir)
    except ConfigError as error:
        raise CommandError(str(error)) from error
    with open_client(options) as client:
        pair = _pair(client, options.weak, options.strong)
        labels = _labels(client, pair)
    before = known.find(*pair)
    return train_from_labels(labels, pair, None if before is None else before.model)


def train_from_labels(labels: Sequence[Label], pair: Pair, base: PairModel | None) -> tuple[PairModel, dict[str, Any]]:
    """Return the same from labels at hand; `base` is what the pair has now.

    Raises:
        TrainingError: The labels are too few or all alike, or scikit-learn is not installed.
    """
    try:
        import_trainer()
    except TrainingUnavailable as error:
        raise TrainingError(str(error)) from error
    if len(labels) < MIN_LABELS:
        raise TrainingError(
            f"the gateway has {len(labels)} labels of {pair[0]} and {pair[1]}, at least {MIN_LABELS} are needed; they "
            "come from shadows, audits and feedback"
        )
    used = [label for number, label in enumerate(labels) if number % HELD_OUT]
    if len({label.lost < 0.5 for label in used}) < 2:
        raise TrainingError("every label is the same, so there is nothing to fit")
    held_out = labels[::HELD_OUT]
    report: dict[str, Any] = {"squared_error": round(squared_error(learned_of(used, base), held_out), 4)}
    if base is not None:
        report["squared_error_before"] = round(squared_error(hashed_model(base), held_out), 4)
    return learned_of(labels, base), report


def _pair(client: AdminClient, weak: str | None, strong: str | None) -> Pair:
    """Return the named pair, or the only pair that has labels."""
    pairs: list[Pair] = [(found["weak"], found["strong"]) for found in client.get("routing/labels")["pairs"]]
    fitting = [pair for pair in pairs if weak in (None, pair[0]) and strong in (None, pair[1])]
    if len(fitting) == 1:
        return fitting[0]
    pairs_text = "; ".join(f"--weak {pair[0]} --strong {pair[1]}" for pair in pairs) or "none of any pair"
    raise TrainingError(f"name one pair that the gateway has labels of: {pairs_text}")


def _labels(client: AdminClient, pair: Pair) -> list[Label]:
    found: list[Label] = []
    after: str | None = ""
    while after is not None:
        query = urlencode({"weak": pair[0], "strong": pair[1], "after": after})
        page = client.get(f"routing/labels/export?{query}")
        found += msgspec.convert(page["labels"], list[Label])
        after = page["next"]
    if any(label.format != FORMAT for label in found):
        raise TrainingError("the gateway is of another version than this command; use that one's")
    return found
