"""Unit conversion, from whole factors of ten to mixed units."""

import random

from engine.training.data.example import Difficulty, Example, Frames, Split, is_held_out, user

FRAMES = Frames(
    ("Convert {x} to {u}.", "How many {u} are {x}?", "What is {x} in {u}?", "{x} in {u}", "Express {x} in {u}.",
     "Change {x} into {u}.", "I have {x}. How many {u} is that?", "Write {x} in {u}.", "Tell me how many {u} {x} are."),
    ("Please convert {x} to {u}.", "How much is {x} in {u}?", "How many {u} is {x}?"))  # fmt: skip
# from, to, factor, short answer unit
TENS = (
    ("kilometres", "metres", 1000, "m"), ("metres", "centimetres", 100, "cm"), ("kilograms", "grams", 1000, "g"),
    ("litres", "millilitres", 1000, "ml"), ("centimetres", "millimetres", 10, "mm"), ("euros", "cents", 100, "cents"),
)  # fmt: skip
TABLES = (
    ("weeks", "days", 7, "days"), ("hours", "minutes", 60, "minutes"), ("days", "hours", 24, "hours"),
    ("dozen", "pieces", 12, "pieces"), ("feet", "inches", 12, "inches"), ("minutes", "seconds", 60, "seconds"),
)  # fmt: skip
SHORT = {"kilometres": "km", "metres": "m", "kilograms": "kg", "litres": "l", "centimetres": "cm", "euros": "euros"}


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """A conversion with its result and unit."""
    if difficulty == "easy":
        quantity, unit, answer = _easy(rng, split)
    elif difficulty == "medium":
        quantity, unit, answer = _medium(rng, split)
    else:
        quantity, unit, answer = rng.choice((_decimal, _mixed, _to_mixed))(rng, split)
    text = FRAMES.pick(rng, split).format(x=quantity, u=unit)
    return Example(messages=(user(text),), answer=answer, task="units", difficulty=difficulty)


def _number(rng: random.Random, split: Split, low: int, high: int, *key: object) -> int:
    """A number of the split; ranges of up to twenty are too small to hold numbers out."""
    while True:
        number = rng.randint(low, high)
        if high <= 20 or is_held_out(*key, number) == (split == "test"):
            return number


def _easy(rng: random.Random, split: Split) -> tuple[str, str, str]:
    if rng.random() < 0.5:
        unit, to, factor, short = rng.choice(TENS)
        number = _number(rng, split, 2, 99, unit)
    else:
        unit, to, factor, short = rng.choice(TABLES)
        number = _number(rng, split, 2, 10, unit)
    return f"{number} {unit}", to, f"{number * factor} {short}"


def _medium(rng: random.Random, split: Split) -> tuple[str, str, str]:
    unit, to, factor, short = rng.choice(TENS)
    if rng.random() < 0.5:
        number = _number(rng, split, 100, 999, unit)
        return f"{number} {unit}", to, f"{number * factor} {short}"
    number = _number(rng, split, 2, 99, to)
    return f"{number * factor} {to}", unit, f"{number} {SHORT[unit]}"


def _decimal(rng: random.Random, split: Split) -> tuple[str, str, str]:
    unit, to, factor, short = rng.choice(TENS)
    places = 1 if factor == 10 else 2
    number = _number(rng, split, 11 * 10 ** (places - 1), 10 ** (places + 1) - 1, "decimal", unit)
    whole, rest = divmod(number, 10**places)
    return f"{whole}.{rest:0{places}d} {unit}", to, f"{number * factor // 10**places} {short}"


def _mixed(rng: random.Random, split: Split) -> tuple[str, str, str]:
    unit, to, factor, short = rng.choice((TABLES[1], TABLES[0], TABLES[4]))
    number = _number(rng, split, factor + 1, factor * 12 - 1, "mixed", unit)
    whole, rest = divmod(number, factor)
    return f"{whole} {unit} and {rest} {to}", to, f"{number} {short}"


def _to_mixed(rng: random.Random, split: Split) -> tuple[str, str, str]:
    unit, to, factor, _ = rng.choice((TABLES[1], TABLES[0], TABLES[4]))
    number = _number(rng, split, factor + 1, factor * 12 - 1, "to mixed", unit)
    whole, rest = divmod(number, factor)
    return f"{number} {to}", f"{unit} and {to}", f"{whole} {unit} and {rest} {to}"
