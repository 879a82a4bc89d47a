"""Arithmetic task: sums, differences and products, from single digits to two digits on both sides."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from engine.training.data.example import Difficulty, Example, Frames, Split, is_held_out, user
from engine.training.data.forms import NUMBER_WORDS, in_a_manner, pick_form

FRAMES = {
    "+": Frames(
        ("What is {a} + {b}?", "{a} + {b}", "{a} + {b} =", "What is {a} plus {b}?", "Calculate {a} + {b}.",
         "Add {a} and {b}.",
         "What is the sum of {a} and {b}?", "Compute {a} plus {b}.", "How much is {a} + {b}?", "Work out {a} + {b}.",
         "Please compute {a} + {b}.", "Tell me {a} + {b}.", "Can you calculate {a} plus {b}?",
         "How much do I get for {a} + {b}?",
         "Please add {a} and {b}.", "I need the result of {a} + {b}.", "{a} plus {b}", "{a} and {b} together",
         "{a} + {b} = ?", "Add {b} to {a}.", "What does {a} plus {b} make?", "What's {a} + {b}?", "{a} plus {b} is?",
         "Tell me what {a} plus {b} is.", "Give me the sum of {a} and {b}.", "Total of {a} and {b}?",
         "Tell me the total of {a} and {b}.", "If I add {b} to {a}, what do I get?", "Increase {a} by {b}."),
        ("How much is {a} plus {b}?", "Please calculate {a} + {b}.", "What do you get for {a} + {b}?",
         "What is the total of {a} and {b}?", "Please add {b} to {a}.")),
    "-": Frames(
        ("What is {a} - {b}?", "{a} - {b}", "{a} - {b} =", "What is {a} minus {b}?", "Calculate {a} - {b}.",
         "Compute {a} minus {b}.", "How much is {a} - {b}?", "Work out {a} - {b}.", "Please compute {a} - {b}.",
         "Tell me {a} - {b}.", "Can you calculate {a} minus {b}?", "How much do I get for {a} - {b}?",
         "I need the result of {a} - {b}.", "{a} minus {b}", "{a} - {b} = ?", "Subtract {b} from {a}.",
         "Take {b} away from {a}.", "What is {a} take away {b}?", "What does {a} minus {b} make?", "What's {a} - {b}?",
         "{a} minus {b} is?", "Tell me what {a} minus {b} is.", "Compute {b} subtracted from {a}.",
         "From {a}, subtract {b}.", "If I subtract {b} from {a}, what do I get?", "Take {b} from {a}.",
         "Reduce {a} by {b}."),
        ("How much is {a} minus {b}?", "Please calculate {a} - {b}.", "What do you get for {a} - {b}?",
         "Please subtract {b} from {a}.", "What is {b} subtracted from {a}?")),
    "difference": Frames(
        ("What is the difference between {a} and {b}?", "Difference between {a} and {b}",
         "Tell me the difference between {a} and {b}.", "How far apart are {a} and {b}?",
         "Compute the difference of {a} and {b}.", "By how much do {a} and {b} differ?"),
        ("Give me the difference between {a} and {b}.", "How big is the difference of {a} and {b}?")),
    "*": Frames(
        ("What is {a} * {b}?", "{a} * {b}", "{a} * {b} =", "What is {a} times {b}?", "Calculate {a} * {b}.",
         "Compute {a} times {b}.", "How much is {a} * {b}?", "Work out {a} * {b}.", "Please compute {a} * {b}.",
         "Tell me {a} * {b}.", "Can you calculate {a} times {b}?", "How much do I get for {a} * {b}?",
         "What is {a} multiplied by {b}?", "{a} times {b}", "{a} * {b} = ?", "Multiply {a} by {b}.",
         "What is the product of {a} and {b}?", "Multiply {a} and {b}.", "What does {a} times {b} make?",
         "What's {a} * {b}?", "{a} times {b} is?", "Tell me what {a} times {b} is."),
        ("How much is {a} times {b}?", "Please calculate {a} * {b}.", "What do you get for {a} * {b}?",
         "Please multiply {a} by {b}.", "Give me the product of {a} and {b}.")),
}  # fmt: skip
NOTATIONS: Mapping[str, tuple[str, ...]] = {
    "+": (" + ", "+"), "-": (" - ", "-", " − "), "*": (" * ", "*", " x ", "x", " × ", "×"),
}  # fmt: skip
"""Spellings of a sign between two numbers."""


@dataclass(frozen=True, slots=True)
class Operands:
    """One shape of operands: the sign, the range of each, and their order."""

    sign: str
    first: tuple[int, int]
    second: tuple[int, int]
    order: str = ""
    """Relation between the two operands: `>=`, `<`, `=`, or empty for any."""

    def draw(self, rng: random.Random) -> tuple[int, int]:
        """Return a pair of this shape."""
        while True:
            a = rng.randint(*self.first)
            b = a if self.order == "=" else rng.randint(*self.second)
            if self.order not in (">=", "<") or (a >= b) == (self.order == ">="):
                return a, b


DIGIT, SMALL, ANY, TABLE = (0, 9), (10, 40), (10, 99), (11, 25)
OPERANDS: Mapping[Difficulty, Mapping[str, Operands]] = {
    "easy": {
        "digit + digit": Operands("+", DIGIT, DIGIT),
        "small + digit": Operands("+", SMALL, DIGIT),
        "digit + small": Operands("+", DIGIT, SMALL),
        "digit - digit": Operands("-", DIGIT, DIGIT, ">="),
        "small - digit": Operands("-", SMALL, DIGIT),
        "difference to a digit": Operands("difference", (0, 40), DIGIT, ">="),
        "digit * digit": Operands("*", DIGIT, DIGIT),
        "digit * ten": Operands("*", (0, 10), (10, 10)),
        "ten * digit": Operands("*", (10, 10), (0, 10)),
    },
    "medium": {
        "any + digit": Operands("+", ANY, DIGIT),
        "digit + any": Operands("+", DIGIT, ANY),
        "any - digit": Operands("-", ANY, DIGIT),
        "digit - digit, below zero": Operands("-", DIGIT, DIGIT, "<"),
        "digit - any, below zero": Operands("-", DIGIT, ANY),
        "difference, the smaller first": Operands("difference", DIGIT, (1, 40), "<"),
        "a number + itself": Operands("+", (10, 49), (0, 0), "="),
        "a number - itself": Operands("-", (0, 99), (0, 0), "="),
        "any * nothing or one": Operands("*", ANY, (0, 1)),
        "nothing or one * any": Operands("*", (0, 1), ANY),
    },
    "hard": {
        "any + any": Operands("+", ANY, ANY),
        "any - any": Operands("-", ANY, ANY, ">="),
        "any - any, below zero": Operands("-", ANY, ANY, "<"),
        "table * digit": Operands("*", TABLE, (2, 9)),
        "digit * table": Operands("*", (2, 9), TABLE),
    },
}  # fmt: skip


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Return an arithmetic question; the answer is the bare number."""
    form, sign, a, b = operands(rng, split, difficulty)
    frame = in_a_manner(rng, split, FRAMES[sign].pick(rng, split))
    return Example(
        messages=(user(_filled(rng, frame, sign, a, b)),),
        answer=str(evaluate(sign, a, b)),
        task="arithmetic",
        difficulty=difficulty,
        form=form,
    )


def evaluate(sign: str, a: int, b: int) -> int:
    """Return the result of one operation; a difference has no sign."""
    match sign:
        case "+":
            return a + b
        case "-":
            return a - b
        case "difference":
            return abs(a - b)
    return a * b


def operands(rng: random.Random, split: Split, difficulty: Difficulty) -> tuple[str, str, int, int]:
    """Return a shape of operands with its sign and a pair that belongs to the split."""
    form, shape = pick_form(rng, OPERANDS[difficulty])
    while True:
        a, b = shape.draw(rng)
        if is_shared(shape.sign, a, b) or is_held_out(*held_out_key(shape.sign, a, b)) == (split == "test"):
            return form, shape.sign, a, b


def is_shared(sign: str, a: int, b: int) -> bool:
    """Return whether both splits have these operands: single digits and times tables are too few to hold out."""
    return (a < 10 and b < 10) or (sign == "*" and a <= 10 and b <= 10)


def held_out_key(sign: str, a: int, b: int) -> tuple[object, ...]:
    """Return the key that decides the split; both orders of a sum, product or difference share it."""
    match sign:
        case "-":
            return sign, a, b
        case "difference":
            return "-", max(a, b), min(a, b)
    return sign, *sorted((a, b))


def _filled(rng: random.Random, frame: str, sign: str, a: int, b: int) -> str:
    """Return the wording with both numbers; without a sign between them they may be words."""
    spaced = f"{{a}} {sign} {{b}}"
    if spaced in frame:
        written = rng.choice(NOTATIONS[sign]) if rng.random() < 0.4 else NOTATIONS[sign][0]
        return frame.replace(spaced, f"{{a}}{written}{{b}}").format(a=a, b=b)
    if max(a, b) < len(NUMBER_WORDS) and rng.random() < 0.35:
        return frame.format(a=NUMBER_WORDS[a], b=NUMBER_WORDS[b])
    return frame.format(a=a, b=b)
