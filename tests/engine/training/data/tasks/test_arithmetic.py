"""Sums, differences and products: their operands, their signs and which of them are held out."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from engine.training.data.example import DIFFICULTIES, Difficulty, is_held_out
from engine.training.data.forms import NUMBER_WORDS
from engine.training.data.tasks import arithmetic
from tests.engine.training.data.test_forms import made


def test_held_out_operands_are_never_trained_on() -> None:
    rng = random.Random(0)
    for difficulty in DIFFICULTIES:
        for _ in range(2000):
            _, sign, a, b = arithmetic.operands(rng, "train", difficulty)
            is_shared = arithmetic.is_shared(sign, a, b)
            assert is_shared or not is_held_out(*arithmetic.held_out_key(sign, a, b))


@pytest.mark.parametrize(("sign", "a", "b"), [("+", 7, 11), ("*", 6, 17), ("difference", 3, 28)])
def test_both_orders_of_two_numbers_belong_to_the_same_split(sign: str, a: int, b: int) -> None:
    assert arithmetic.held_out_key(sign, a, b) == arithmetic.held_out_key(sign, b, a)


def drawn(difficulty: Difficulty, count: int = 20_000) -> Iterator[tuple[str, int, int]]:
    rng = random.Random(7)
    return (arithmetic.operands(rng, "train", difficulty)[1:] for _ in range(count))


@pytest.mark.parametrize("sign", ["+", "*"])
def test_one_digit_comes_first_and_second(sign: str) -> None:
    pairs = {(a, b) for drawn_sign, a, b in drawn("easy") if drawn_sign == sign}
    assert {(a, b) for a in range(10) for b in range(10)} <= pairs
    assert any(a < 10 <= b for a, b in pairs)
    assert any(b < 10 <= a for a, b in pairs)


@pytest.mark.parametrize("first", [0, 1, 5, 7, 9])
def test_every_digit_is_added_to_every_number_of_two_digits(first: int) -> None:
    pairs = {(a, b) for sign, a, b in drawn("medium", 60_000) if sign == "+" and a == first}
    held_out = {b for b in range(10, 100) if is_held_out(*arithmetic.held_out_key("+", first, b))}
    assert {b for _, b in pairs if b >= 10} == set(range(10, 100)) - held_out


def test_numbers_are_equal_nothing_one_and_below_zero() -> None:
    found = {
        (sign, "=" if a == b else "<" if a < b else ">", 0 in (a, b), arithmetic.evaluate(sign, a, b) < 0)
        for difficulty in DIFFICULTIES
        for sign, a, b in drawn(difficulty, 5000)
    }
    for sign in ("+", "-", "*"):
        assert {order for found_sign, order, *_ in found if found_sign == sign} == {"=", "<", ">"}
        assert any(has_zero for found_sign, _, has_zero, _ in found if found_sign == sign)
    assert {sign for sign, *_, is_below in found if is_below} == {"-"}


@pytest.mark.parametrize(
    ("sign", "a", "b", "result"),
    [
        ("+", 7, 11, 18),
        ("-", 5, 8, -3),
        ("-", 8, 8, 0),
        ("difference", 5, 8, 3),
        ("difference", 8, 5, 3),
        ("*", 7, 12, 84),
    ],
)
def test_a_difference_has_no_sign_and_a_subtraction_has(sign: str, a: int, b: int, result: int) -> None:
    assert arithmetic.evaluate(sign, a, b) == result


def test_numbers_are_written_with_signs_of_all_kinds_and_in_words() -> None:
    prompts = [example.prompt for difficulty in DIFFICULTIES for example in made("arithmetic", difficulty)]
    for sign in (r" \+ ", r"\+", " - ", "-", " − ", r" \* ", r"\*", " x ", "x", " × ", "×"):
        assert any(re.search(rf"\d{sign}\d", prompt) for prompt in prompts), sign
    spelled = {word for prompt in prompts for word in re.findall("[a-z]+", prompt.lower())}
    assert set(NUMBER_WORDS) <= spelled
