"""Ordered JSON: the same bytes for equal values, in time that does not depend on the order of their members."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from gateway.util.ordered_json import WIDE, encode_narrow, encode_ordered

NAMES: Final = ("k", "K", "k1", "k10", "k2", "", "\u00e9", "\ud7ff", "\uffff", "\U0001f600", "a:b", '"', "\\", "0")

ORDERS: Final[dict[str, Callable[[int], list[str]]]] = {
    "two before the others": lambda num: ["role", "content", *(f"k{n:06}" for n in range(num))],
    "two behind the others": lambda num: [*(f"k{n:06}" for n in range(num)), "b", "a"],
    "rising": lambda num: [f"k{n:06}" for n in range(num)],
    "falling": lambda num: [f"k{n:06}" for n in reversed(range(num))],
    "to the middle": lambda num: [f"k{min(n, num - n):06}{n % 2}" for n in range(num)],
    "no order": lambda num: random.Random(1).sample([f"k{n:06}" for n in range(num)], num),
}


def wide(**members: Any) -> dict[str, Any]:
    return {**{f"z{n}": n for n in range(WIDE)}, **members}


@pytest.mark.parametrize("seed", range(5))
def test_wide_objects_are_in_the_same_order_as_narrow_ones(seed: int) -> None:
    names = random.Random(seed).sample(NAMES, len(NAMES))
    inner = {name: [{"b": 1, "a": None}, 1.5, "x"] for name in names}
    alone = encode_narrow(inner)
    whole = encode_ordered(wide(inner=inner))
    assert b'"inner":' + alone in whole
    assert encode_ordered([inner, "x"]) == encode_narrow([inner, "x"])


@pytest.mark.parametrize("make", ORDERS.values(), ids=ORDERS.keys())
def test_the_order_of_members_is_silent(make: Callable[[int], list[str]]) -> None:
    names = make(3000)
    given = {name: {"y": 1, "x": 2} for name in names}
    other = {name: {"x": 2, "y": 1} for name in sorted(names, reverse=True)}
    assert encode_ordered(given) == encode_ordered(other)
    assert list(msgspec.json.decode(encode_ordered([given]))[0]) == sorted(set(names))


@pytest.mark.parametrize("place", [lambda found: found, lambda found: [found], lambda found: {"a": [{"b": found}]}])
@pytest.mark.parametrize("make", ORDERS.values(), ids=ORDERS.keys())
def test_two_hundred_thousand_members_take_their_time_only(
    make: Callable[[int], list[str]], place: Callable[[Any], Any]
) -> None:
    given = place(dict.fromkeys(make(200_000), 1))
    began_at = time.perf_counter()
    encode_ordered(given)
    assert time.perf_counter() - began_at < 5.0


def test_long_integers_stay_exact() -> None:
    for members in ({"n": 1 << 70}, wide(n=1 << 70)):
        assert b'"n":1180591620717411303424' in encode_ordered(members)
