"""Sides are measured in turn, and ratios are taken within a round."""

from __future__ import annotations

import pytest

from loadtests.engine.repeats import Repeats


async def test_the_order_of_sides_turns_from_round_to_round() -> None:
    order: list[str] = []

    async def one() -> float:
        order.append("one")
        return 1.0

    async def two() -> float:
        order.append("two")
        return 2.0

    repeats = await Repeats({"one": one, "two": two}).run(0.0, at_least=3)
    assert order == ["one", "two", "two", "one", "one", "two"]
    assert repeats.num_repeats == 3


async def test_a_ratio_is_the_median_of_the_repeats_ratios() -> None:
    values = {"one": [10.0, 2.0, 60.0], "two": [5.0, 2.0, 20.0]}
    left = {name: list(found) for name, found in values.items()}

    async def next_of(name: str) -> float:
        return left[name].pop(0)

    repeats = await Repeats({"one": lambda: next_of("one"), "two": lambda: next_of("two")}).run(0.0)
    assert repeats.ratio("one", "two") == pytest.approx(2.0)
    assert repeats.median("one") == 10.0
    assert repeats.lines()[0].endswith("10, 2, 60")
