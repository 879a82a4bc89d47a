"""Unit task: conversions, from whole factors of ten to mixed units."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.training.data.example import Difficulty, Example, Frames, Split, is_held_out, user
from engine.training.data.forms import in_a_manner, pick_form

FRAMES = Frames(
    ("Convert {x} to {u}.", "How many {u} are {x}?", "What is {x} in {u}?", "{x} in {u}", "Express {x} in {u}.",
     "Change {x} into {u}.", "I have {x}. How many {u} is that?", "Write {x} in {u}.", "Tell me how many {u} {x} are.",
     "How many {u} are in {x}?", "{x} to {u}", "How many {u} does {x} have?", "{x} = how many {u}?",
     "Turn {x} into {u}.", "How many {u} make {x}?"),
    ("Please convert {x} to {u}.", "How much is {x} in {u}?", "How many {u} is {x}?",
     "How many {u} are there in {x}?"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class NamedUnit:
    """Names of a unit: singular, plural, short, and American plural, where they exist."""

    one: str
    many: str
    short: str = ""
    american: str = ""

    def name(self, number: str, notation: str) -> str:
        """Return the name after a number, in the notation."""
        match notation:
            case "short" if self.short:
                return self.short
            case "american" if self.american:
                return self.american.removesuffix("s") if number == "1" else self.american
        return self.one if number == "1" else self.many


NAMED = (
    NamedUnit("kilometre", "kilometres", "km", "kilometers"), NamedUnit("metre", "metres", "m", "meters"),
    NamedUnit("centimetre", "centimetres", "cm", "centimeters"),
    NamedUnit("millimetre", "millimetres", "mm", "millimeters"),
    NamedUnit("kilogram", "kilograms", "kg"), NamedUnit("gram", "grams", "g"),
    NamedUnit("litre", "litres", "l", "liters"), NamedUnit("millilitre", "millilitres", "ml", "milliliters"),
    NamedUnit("euro", "euros"), NamedUnit("cent", "cents"), NamedUnit("week", "weeks"), NamedUnit("day", "days"),
    NamedUnit("hour", "hours", "h"), NamedUnit("minute", "minutes", "min"),
    NamedUnit("second", "seconds", "s"), NamedUnit("dozen", "dozen"), NamedUnit("piece", "pieces"),
    NamedUnit("foot", "feet"), NamedUnit("inch", "inches"),
)  # fmt: skip
UNITS: Mapping[str, NamedUnit] = {unit.many: unit for unit in NAMED}
NOTATIONS = ("full", "full", "full", "short", "american")
# from, to, factor
Row = tuple[str, str, int]
TENS: tuple[Row, ...] = (
    ("kilometres", "metres", 1000), ("metres", "centimetres", 100), ("kilograms", "grams", 1000),
    ("litres", "millilitres", 1000), ("centimetres", "millimetres", 10), ("euros", "cents", 100),
)  # fmt: skip
TABLES: tuple[Row, ...] = (
    ("weeks", "days", 7), ("hours", "minutes", 60), ("days", "hours", 24), ("dozen", "pieces", 12),
    ("feet", "inches", 12), ("minutes", "seconds", 60),
)  # fmt: skip
MIXED: tuple[Row, ...] = (TABLES[1], TABLES[0], TABLES[4])
HALVES: tuple[Row, ...] = (TABLES[1], TABLES[2], TABLES[5])
METRIC = frozenset(unit for row in TENS for unit in row[:2])


@dataclass(frozen=True, slots=True)
class Conversion:
    """Input and result of a conversion, both as text."""

    quantity: str
    unit: str
    answer: str


Draw = Callable[[random.Random, Split], Conversion]


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Return a conversion with its result and unit."""
    form, draw = pick_form(rng, FORMS[difficulty])
    conversion = draw(rng, split)
    frame = in_a_manner(rng, split, FRAMES.pick(rng, split))
    text = frame.format(x=conversion.quantity, u=conversion.unit)
    return Example(messages=(user(text),), answer=conversion.answer, task="units", difficulty=difficulty, form=form)


def _number(rng: random.Random, split: Split, low: int, high: int, *key: object) -> int:
    """Return a number of the split."""
    while True:
        number = rng.randint(low, high)
        if is_held_out(*key, number) == (split == "test"):
            return number


def answered(number: str, unit: str) -> str:
    """Return the result: metric units are short, others are words in the number's form."""
    return f"{number} {UNITS[unit].name(number, 'short' if unit in METRIC else 'full')}"


def _conversion(rng: random.Random, number: str, unit: str, result: str, to: str) -> Conversion:
    """Return a conversion with both units in one notation, sometimes not the full names."""
    notation = rng.choice(NOTATIONS)
    name = UNITS[unit].name(number, notation)
    article = "an" if name == "hour" else "a"
    written = rng.choice((article, "one")) if number == "1" and notation == "full" and rng.random() < 0.5 else number
    return Conversion(f"{written} {name}", UNITS[to].name("2", notation), answered(result, to))


def _forward(rng: random.Random, split: Split, rows: tuple[Row, ...], low: int, high: int) -> Conversion:
    unit, to, factor, number = _row(rng, split, rows, low, high, side=0)
    return _conversion(rng, str(number), unit, str(number * factor), to)


def _backward(rng: random.Random, split: Split, rows: tuple[Row, ...], high: int) -> Conversion:
    unit, to, factor, number = _row(rng, split, rows, 1, high, side=1)
    return _conversion(rng, str(number * factor), to, str(number), unit)


def _row(
    rng: random.Random, split: Split, rows: tuple[Row, ...], low: int, high: int, *, side: int
) -> tuple[str, str, int, int]:
    """Return a row with a number of the split; the side's unit is part of the split key.

    Ranges of up to twenty are too small to hold numbers out.
    """
    while True:
        row = rng.choice(rows)
        number = rng.randint(low, high)
        if high <= 20 or is_held_out(row[side], number) == (split == "test"):
            return *row, number


def _decimal(rng: random.Random, split: Split) -> Conversion:
    number, row = _decimal_number(rng, split, "decimal")
    return _conversion(rng, f"{number / 100:.2f}".rstrip("0"), row[0], str(number * row[2] // 100), row[1])


def _decimal_backward(rng: random.Random, split: Split) -> Conversion:
    number, row = _decimal_number(rng, split, "decimal backward")
    return _conversion(rng, str(number * row[2] // 100), row[1], f"{number / 100:.2f}".rstrip("0"), row[0])


def _decimal_number(rng: random.Random, split: Split, key: str) -> tuple[int, Row]:
    """Return hundredths that are no whole number, with no more places than the unit has; half of them tenths."""
    unit, to, factor = rng.choice(TENS)
    while True:
        if factor == 10 or rng.random() < 0.5:
            hundredths = 10 * _number(rng, split, 11, 99, key, unit, "tenths")
        else:
            hundredths = _number(rng, split, 110, 999, key, unit)
        if hundredths % 100:
            return hundredths, (unit, to, factor)


def _and_a_half(rng: random.Random, _split: Split) -> Conversion:
    unit, to, factor = rng.choice(HALVES)
    number = rng.randint(1, 9)
    return _conversion(rng, f"{number}.5", unit, str(number * factor + factor // 2), to)


def _mixed_quantity(rng: random.Random, split: Split, key: str) -> tuple[int, str, Row]:
    """Return a number of the smaller unit, and its wording in both units, in forms that fit each number."""
    unit, to, factor = rng.choice(MIXED)
    number = _number(rng, split, factor + 1, factor * 12 - 1, key, unit)
    whole, rest = divmod(number, factor)
    return number, f"{answered(str(whole), unit)} and {answered(str(rest), to)}", (unit, to, factor)


def _mixed(rng: random.Random, split: Split) -> Conversion:
    number, quantity, row = _mixed_quantity(rng, split, "mixed")
    return Conversion(quantity, row[1], answered(str(number), row[1]))


def _to_mixed(rng: random.Random, split: Split) -> Conversion:
    number, quantity, row = _mixed_quantity(rng, split, "to mixed")
    return Conversion(f"{number} {row[1]}", f"{row[0]} and {row[1]}", quantity)


FORMS: Mapping[Difficulty, Mapping[str, Draw]] = {
    "easy": {
        "tens": lambda rng, split: _forward(rng, split, TENS, 1, 99),
        "one of tens": lambda rng, split: _forward(rng, split, TENS, 1, 1),
        "tables": lambda rng, split: _forward(rng, split, TABLES, 1, 12),
        "one of tables": lambda rng, split: _forward(rng, split, TABLES, 1, 1),
    },
    "medium": {
        "hundreds": lambda rng, split: _forward(rng, split, TENS, 100, 999),
        "tens backward": lambda rng, split: _backward(rng, split, TENS, 99),
        "tables backward": lambda rng, split: _backward(rng, split, TABLES, 12),
    },
    "hard": {
        "decimal": _decimal, "decimal backward": _decimal_backward, "and a half": _and_a_half, "mixed": _mixed,
        "to mixed": _to_mixed,
        "beyond the tables": lambda rng, split: _forward(rng, split, TABLES, 13, 40),
    },
}  # fmt: skip
