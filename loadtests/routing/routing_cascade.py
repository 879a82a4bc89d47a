"""A cascade over recorded first tokens: its ratios are chosen on one half of the prompts and evaluated on the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.cli.outcomes.quality_training import Line
from loadtests.harness.card import Value
from loadtests.routing.routing_curve import Scores
from routing_policies.quality.cascade import GIVE_UP_RATIO, SURE_RATIO, Inquiry
from routing_policies.quality.confidence import CascadeCheckpoint, TokenOdds
from routing_policies.quality.model import PairModel, Prediction

Rows = NDArray[np.int64]

FIRST_TOKENS: Final = 24
"""As in the preset `small-first`."""
WANTED: Final = 0.993
"""Of the large model's accuracy, on the half that ratios are chosen on: a little more than what is to be stored."""
_GRID: Final = ((0.9, 0.92, 0.93, 0.94, 0.95, 0.96), (0.2, 0.3, 0.4), (0.7, 0.9), (0.2, 0.4))


class Ratios(msgspec.Struct, frozen=True):
    """What a cascade goes by."""

    min_quality: float = 0.935
    skip_below: float = 0.3
    """Both as in the preset `small-first`."""
    sure: float = SURE_RATIO
    give_up: float = GIVE_UP_RATIO


class Case(msgspec.Struct, frozen=True):
    """One prompt, the small model's first tokens, and what was predicted."""

    odds: tuple[TokenOdds, ...]
    num_tokens: int
    found: Prediction


class Played(msgspec.Struct, frozen=True):
    """What a cascade did, prompt by prompt."""

    is_large: NDArray[np.bool_]
    waited: NDArray[np.int64]
    """Tokens after the first one, which is waited for in any case."""
    num_left: int
    """Tokens of small answers that were not passed on."""


def cases_of(lines: Sequence[Line], predictions: Sequence[Prediction], small: str) -> list[Case]:
    """Of prompts whose first tokens are known."""
    found = []
    for line, prediction in zip(lines, predictions, strict=True):
        odds = tuple(map(TokenOdds, line.logprobs[small], line.margins[small]))
        found.append(Case(odds, line.tokens[small], prediction))
    return found


def played(cases: Sequence[Case], checkpoints: tuple[CascadeCheckpoint, ...], ratios: Ratios) -> Played:
    """Token by token, as the gateway would."""
    is_large, waited, num_left = [], [], 0
    for case in cases:
        num_read, is_passed_on = inquire(case, checkpoints, ratios)
        is_large.append(not is_passed_on)
        waited.append(max(num_read - 1, 0))
        num_left += 0 if is_passed_on else num_read
    return Played(np.array(is_large), np.array(waited), num_left)


def chosen(cases: Sequence[Case], checkpoints: tuple[CascadeCheckpoint, ...], scores: Scores) -> Ratios:
    """Those with the fewest large calls among all that keep what is wanted; the most accurate if none does."""
    tried = [Ratios(*point) for point in product(*_GRID)]
    shares, ratios_left = [], []
    for ratios in tried:
        is_large = played(cases, checkpoints, ratios).is_large
        shares.append(float(is_large.mean()))
        ratios_left.append(scores.ratio_of(is_large))
    good = [number for number, ratio in enumerate(ratios_left) if ratio >= WANTED]
    return tried[min(good, key=shares.__getitem__) if good else int(np.argmax(ratios_left))]


def cascade_results(model: PairModel, cases: Sequence[Case], scores: Scores) -> tuple[dict[str, Value], str]:
    """With chosen ratios, of the half that they were not chosen on; with those that come with the package, of all; and
    the chosen ones in words."""
    order = np.random.default_rng(11).permutation(len(cases))
    half = len(order) // 2
    first, second = np.sort(order[:half]), np.sort(order[half:])
    ratios = chosen([cases[row] for row in first], model.checkpoints, scores.take(first))
    results: dict[str, Value] = {"cascade_prompts": len(second)}
    for name, used, rows in (("cascade", ratios, second), ("cascade_as_shipped", Ratios(), np.arange(len(cases)))):
        evaluated = [cases[row] for row in rows]
        one = played(evaluated, model.checkpoints, used)
        results |= {
            f"{name}_accuracy_ratio": scores.take(rows).ratio_of(one.is_large),
            f"{name}_large_share": float(one.is_large.mean()),
            f"{name}_tokens_waited_p50": float(np.median(one.waited)),
            f"{name}_tokens_waited_p90": float(np.quantile(one.waited, 0.9)),
            f"{name}_tokens_left_per_request": one.num_left / len(evaluated),
        }
    note = ", ".join(f"{field} {getattr(ratios, field)}" for field in ratios.__struct_fields__)
    return results, f"cascade: chosen on {len(first)} prompts, evaluated on the {len(second)} others: {note}"


def inquire(case: Case, checkpoints: tuple[CascadeCheckpoint, ...], ratios: Ratios) -> tuple[int, bool]:
    """How many tokens were read, and whether the small model's answer goes on. That it has ended is given after its
    last token."""
    if case.found.probability < ratios.skip_below:
        return 0, False
    inquiry = Inquiry(
        ratios.min_quality, FIRST_TOKENS, case.found.log_odds, checkpoints, sure=ratios.sure, give_up=ratios.give_up
    )
    for num_read in range(1, len(case.odds) + 1):
        answer = inquiry.decide(case.odds[:num_read], is_whole=False)
        if answer is not None:
            return num_read, answer == "go_on"
    is_whole = case.num_tokens <= len(case.odds)
    return len(case.odds), is_whole and inquiry.decide(case.odds, is_whole=True) == "go_on"
