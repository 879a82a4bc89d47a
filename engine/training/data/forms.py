"""Forms of requests: variants of a wording, and numbers in words.

A task's table of forms lists its kinds of prompts. The generator draws uniformly from a table, so that all forms are
about equally frequent.
"""

import random
from collections.abc import Callable, Mapping
from typing import TypeVar

from engine.training.data.example import Frames, Split

Form = TypeVar("Form")
NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
POLITE = Frames(
    ("Please tell me: ", "Hi, ", "Hello, ", "Could you help me? ", "Quick question: ", "One question: ", "Hey, "),
    ("Good evening. ", "A short question: "))  # fmt: skip
THANKS = Frames((" Thanks.", " Thank you!", " Please."), (" Thank you very much.", " Many thanks."))


def unmarked(frame: str) -> str:
    """Return the wording without the punctuation at its end."""
    return frame.rstrip("?.! ")


def _polite(rng: random.Random, split: Split, frame: str) -> str:
    return POLITE.pick(rng, split) + frame


def _thankful(rng: random.Random, split: Split, frame: str) -> str:
    return frame + ("" if frame.endswith(("?", ".", "!", "=")) else ".") + THANKS.pick(rng, split)


Manner = Callable[[random.Random, Split, str], str]
MANNERS: Mapping[str, Manner] = {
    "as written": lambda rng, split, frame: frame,
    "lower case": lambda rng, split, frame: frame.lower(),
    "no mark": lambda rng, split, frame: unmarked(frame),
    "lower case, no mark": lambda rng, split, frame: unmarked(frame).lower(),
    "polite": _polite,
    "thankful": _thankful,
}


def in_a_manner(rng: random.Random, split: Split, frame: str) -> str:
    """Return the wording in one of the manners, half of the time unchanged; its placeholders stay."""
    if rng.random() < 0.4:
        return frame
    return rng.choice(tuple(MANNERS.values()))(rng, split, frame)


def in_a_case(rng: random.Random, frame: str) -> str:
    """Return the wording, sometimes in lower case, for prompts that end with content."""
    return frame.lower() if rng.random() < 0.12 else frame


def pick_form(rng: random.Random, table: Mapping[str, Form]) -> tuple[str, Form]:
    """Return a uniformly drawn row of a table of forms with its name."""
    name = rng.choice(tuple(table))
    return name, table[name]
