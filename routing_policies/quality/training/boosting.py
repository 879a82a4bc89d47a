"""Boosting: trees one after the other, each for what the ones before have left (Friedman, 2001); no chance in it."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from routing_policies.quality.training.logistic import Floats
from routing_policies.quality.training.members import Fold
from routing_policies.quality.training.table import knots_of
from routing_policies.quality.trees import DEPTH, PromptTree

NUM_TREES: Final = 64
_RATE: Final = 0.2
"""Of what a tree has found, as much is believed."""
_RIDGE: Final = 8.0
_NUM_BINS: Final = 32
_LEAST_SPREAD: Final = 1e-6

Places = NDArray[np.int64]


class Grown(NamedTuple):
    """Trees, and what is said before the first of them."""

    bias: float
    trees: tuple[PromptTree, ...]


class Binned(NamedTuple):
    """Numbers as the count of knots that are below them."""

    places: Places
    knots: list[Floats]
    is_knot: NDArray[np.bool_]
    """Of each number and bin."""

    def take(self, rows: NDArray[np.bool_]) -> Binned:
        """Only these rows."""
        return self._replace(places=self.places[rows])


def binned(numbers: Floats) -> Binned:
    """At quantiles; a row for each prompt."""
    shares = np.linspace(0.0, 1.0, _NUM_BINS + 1)[1:-1]
    knots, places = [], np.zeros(numbers.shape, dtype=np.int64)
    for column, values in enumerate(numbers.T):
        knots.append(knots_of(values, shares))
        places[:, column] = np.searchsorted(knots[-1], values, side="left")
    is_knot = np.arange(_NUM_BINS) < np.array([len(found) for found in knots])[:, None]
    return Binned(places, knots, is_knot)


def grown(numbers: Floats, targets: Floats, weights: Floats, folds: Fold) -> tuple[Floats, Grown]:
    """What trees say of each prompt when they were grown without it, as logits; and those grown with all."""
    table = binned(numbers)
    unseen = np.zeros(len(numbers))
    for out in folds.each():
        if not out.any():
            continue
        found = _boosted(table.take(~out), targets[~out], weights[~out])
        unseen[out] = said(found, numbers[out])
    return unseen, _boosted(table, targets, weights)


def said(found: Grown, numbers: Floats) -> Floats:
    """Of many prompts, a row each."""
    total = np.full(len(numbers), found.bias)
    for tree in found.trees:
        place = np.zeros(len(numbers), dtype=np.int64)
        for number, above in zip(tree.numbers, tree.above, strict=True):
            place = 2 * place + (numbers[:, number] > above)
        total += np.array(tree.leaves)[place]
    return total


def _boosted(table: Binned, targets: Floats, weights: Floats) -> Grown:
    mean = float(np.clip(np.average(targets, weights=weights), 0.02, 0.98))
    bias = float(np.log(mean / (1.0 - mean)))
    logits, trees = np.full(len(targets), bias), []
    if not table.is_knot.any():
        return Grown(bias, ())
    for _ in range(NUM_TREES):
        chances = 1.0 / (1.0 + np.exp(-np.clip(logits, -30.0, 30.0)))
        slopes = weights * (targets - chances)
        spread = weights * np.maximum(chances * (1.0 - chances), _LEAST_SPREAD)
        tree, added = _tree(table, slopes, spread)
        trees.append(tree)
        logits += added
    return Grown(bias, tuple(trees))


def _tree(table: Binned, slopes: Floats, spread: Floats) -> tuple[PromptTree, Floats]:
    """The questions that explain most of the slopes, one after the other; and what the tree says of each row."""
    place = np.zeros(len(slopes), dtype=np.int64)
    asked, above = [], []
    for level in range(DEPTH):
        number, knot = _best(table, place, 1 << level, slopes, spread)
        asked.append(number)
        above.append(float(table.knots[number][knot]))
        place = 2 * place + (table.places[:, number] > knot)
    sums, sizes = (np.bincount(place, values, minlength=1 << DEPTH) for values in (slopes, spread))
    leaves = _RATE * sums / (sizes + _RIDGE)
    first, second, third, fourth, fifth = asked
    a, b, c, d, e = above
    tree = PromptTree((first, second, third, fourth, fifth), (a, b, c, d, e), tuple(leaves.tolist()))
    return tree, leaves[place]


def _best(table: Binned, place: Places, num_places: int, slopes: Floats, spread: Floats) -> tuple[int, int]:
    """The number and the knot that part the rows of all places best."""
    num_numbers = table.places.shape[1]
    shape = (num_places, num_numbers, _NUM_BINS)
    cells = table.places + np.arange(num_numbers) * _NUM_BINS + (place * num_numbers * _NUM_BINS)[:, None]
    below, sizes = (
        np.bincount(cells.ravel(), np.repeat(values, num_numbers), minlength=int(np.prod(shape)))
        .reshape(shape)
        .cumsum(axis=2)
        for values in (slopes, spread)
    )
    rest, others = below[:, :, -1:] - below, sizes[:, :, -1:] - sizes
    gains = (below**2 / (sizes + _RIDGE) + rest**2 / (others + _RIDGE)).sum(axis=0)
    number, knot = divmod(int(np.where(table.is_knot, gains, -1.0).argmax()), _NUM_BINS)
    return number, knot
