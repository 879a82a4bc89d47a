"""Trees: what holds only where several figures come together, as sums over a few yes-or-no questions at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

DEPTH: Final = 5
"""Questions of one tree."""


class PromptTree(msgspec.Struct, frozen=True, array_like=True):
    """Asks the same questions of every prompt (Prokhorenkova et al., 2018): is this number above that?"""

    numbers: tuple[int, int, int, int, int]
    above: tuple[float, float, float, float, float]
    leaves: tuple[float, ...]
    """A term for every way to answer; the first question counts most."""


def grown_logit(trees: Iterable[PromptTree], numbers: Sequence[float]) -> float:
    """The sum of all trees' terms."""
    total = 0.0
    for tree in trees:
        first, second, third, fourth, fifth = tree.numbers
        a, b, c, d, e = tree.above
        place = 16 * (numbers[first] > a) + 8 * (numbers[second] > b) + 4 * (numbers[third] > c)
        total += tree.leaves[place + 2 * (numbers[fourth] > d) + (numbers[fifth] > e)]
    return total


def scaled_tree(trees: Iterable[PromptTree], scale: float) -> tuple[PromptTree, ...]:
    """The same with every term so many times as large; none where that is nothing."""
    if not scale:
        return ()
    return tuple(
        msgspec.structs.replace(tree, leaves=tuple(round(scale * leaf, 4) for leaf in tree.leaves)) for tree in trees
    )
