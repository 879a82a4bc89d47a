"""Examples, their wordings, and the rule that separates the splits."""

from __future__ import annotations

import random

import pytest

from engine.training.data.example import Example, Frames, assistant, is_held_out, other_than, user


def test_about_one_key_in_twenty_is_held_out_and_always_the_same_ones() -> None:
    held_out = [number for number in range(10_000) if is_held_out("+", number, 7)]
    assert 400 < len(held_out) < 600
    assert held_out == [number for number in range(10_000) if is_held_out("+", number, 7)]


def test_a_wording_is_one_of_its_split() -> None:
    frames, rng = Frames(("a", "b"), ("c",)), random.Random(1)
    assert {frames.pick(rng, "train") for _ in range(50)} == {"a", "b"}
    assert {frames.pick(rng, "test") for _ in range(9)} == {"c"}


def test_the_prompt_is_the_last_message() -> None:
    messages = (user("first"), assistant("reply"), user("second"))
    assert Example(messages=messages, answer="x", task="t", difficulty="easy").prompt == "second"


@pytest.mark.parametrize("seed", [1, 2])
def test_a_pool_is_used_up_without_repetition(seed: int) -> None:
    rng, used = random.Random(seed), {"a"}
    assert {other_than(rng, "abc", used) for _ in range(2)} == {"b", "c"}
    assert used == {"a", "b", "c"}
