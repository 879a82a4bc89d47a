"""Sums, differences and products, from single digits to two digits on both sides."""

import random

from engine.training.data.example import Difficulty, Example, Frames, Split, is_held_out, user

FRAMES = {
    "+": Frames(
        ("What is {a} + {b}?", "{a} + {b}", "{a} + {b} =", "What is {a} plus {b}?", "Calculate {a} + {b}.",
         "Add {a} and {b}.",
         "What is the sum of {a} and {b}?", "Compute {a} plus {b}.", "How much is {a} + {b}?", "Work out {a} + {b}.",
         "Please compute {a} + {b}.", "Tell me {a} + {b}.", "Can you calculate {a} plus {b}?",
         "How much do I get for {a} + {b}?",
         "Please add {a} and {b}.", "I need the result of {a} + {b}."),
        ("How much is {a} plus {b}?", "Please calculate {a} + {b}.", "What do you get for {a} + {b}?")),
    "-": Frames(
        ("What is {a} - {b}?", "{a} - {b}", "{a} - {b} =", "What is {a} minus {b}?", "Calculate {a} - {b}.",
         "Compute {a} minus {b}.", "How much is {a} - {b}?", "Work out {a} - {b}.", "Please compute {a} - {b}.",
         "Tell me {a} - {b}.", "Can you calculate {a} minus {b}?", "How much do I get for {a} - {b}?",
         "I need the result of {a} - {b}."),
        ("How much is {a} minus {b}?", "Please calculate {a} - {b}.", "What do you get for {a} - {b}?")),
    "*": Frames(
        ("What is {a} * {b}?", "{a} * {b}", "{a} * {b} =", "What is {a} times {b}?", "Calculate {a} * {b}.",
         "Compute {a} times {b}.", "How much is {a} * {b}?", "Work out {a} * {b}.", "Please compute {a} * {b}.",
         "Tell me {a} * {b}.", "Can you calculate {a} times {b}?", "How much do I get for {a} * {b}?",
         "What is {a} multiplied by {b}?"),
        ("How much is {a} times {b}?", "Please calculate {a} * {b}.", "What do you get for {a} * {b}?")),
}  # fmt: skip


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """An arithmetic question; the answer is the bare number."""
    sign, a, b = _operands(rng, split, difficulty)
    text = FRAMES[sign].pick(rng, split).format(a=a, b=b)
    return Example(messages=(user(text),), answer=str(evaluate(sign, a, b)), task="arithmetic", difficulty=difficulty)


def evaluate(sign: str, a: int, b: int) -> int:
    """The result of one operation."""
    return a + b if sign == "+" else a - b if sign == "-" else a * b


def _operands(rng: random.Random, split: Split, difficulty: Difficulty) -> tuple[str, int, int]:
    while True:
        sign, a, b = _draw(rng, difficulty)
        if sign == "-" and a < b:
            a, b = b, a
        # Single digits are too few to hold out: there only the wording is new.
        is_small = a < 10 and b < 10
        if is_small or is_held_out(sign, *((a, b) if sign == "-" else sorted((a, b)))) == (split == "test"):
            return sign, a, b


def _draw(rng: random.Random, difficulty: Difficulty) -> tuple[str, int, int]:
    match difficulty:
        case "easy":
            sign = rng.choice("++--*")
            if sign == "*":
                return sign, rng.randint(0, 9), rng.randint(0, 9)
            return sign, rng.randint(0, rng.choice((9, 20, 40))), rng.randint(0, 9)
        case "medium":
            return rng.choice("+-"), rng.randint(10, 99), rng.randint(2, 9)
        case "hard":
            sign = rng.choice("++--*")
            if sign == "*":
                return sign, rng.randint(11, 25), rng.randint(2, 9)
            return sign, rng.randint(10, 99), rng.randint(10, 99)
