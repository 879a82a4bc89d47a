"""Pairs of questions that look alike and mean something else: the cases in which a similar answer is the wrong one.

Made from templates and words of our own, with a seed. Each kind of change comes with words that the gateway's lists
hold and with words that they do not (`is_listed`): the first alone would say how good the lists are at themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Literal

Kind = Literal["negation", "number", "unit", "direction", "name", "verb"]
KINDS: Final[tuple[Kind, ...]] = ("negation", "number", "unit", "direction", "name", "verb")


_WORDS: Final[dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("data").joinpath("changed_meaning.json").read_text()
)
"""Words and templates by list; → stands between the two of a pair, / between two forms of a word."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The answer of `kept` is wrong for `asked`."""

    kind: Kind
    is_listed: bool
    kept: str
    asked: str


def pairs(kind: Kind, *, is_listed: bool, seed: int) -> Iterator[Pair]:
    """Pairs of one kind without end and without order; the same for the same seed."""
    rng = Random(f"{kind} {is_listed} {seed}")
    make = _MAKERS[kind]
    while True:
        kept, asked = make(rng, is_listed)
        if rng.random() < 0.5:
            kept, asked = asked, kept
        yield Pair(kind, is_listed, kept, asked)


def _negation(rng: Random, is_listed: bool) -> tuple[str, str]:
    do, doing = rng.choice(_WORDS["doings"]).split("/")
    slots = {"do": do, "doing": doing, "thing": rng.choice(_WORDS["things"]), "when": rng.choice(_WORDS["occasions"])}
    kept, asked = rng.choice(_WORDS["negated"] if is_listed else _WORDS["negated_unlisted"]).split(" → ")
    return kept.format(**slots), asked.format(**slots)


def _number(rng: Random, is_listed: bool) -> tuple[str, str]:
    if is_listed and rng.random() < 0.2:
        template, first, second = rng.choice(_WORDS["computed"]), rng.randrange(2, 99), rng.randrange(2, 99)
        left, right = rng.sample(_WORDS["operators"], 2)
        return template.format(first, left, second), template.format(first, right, second)
    template = (
        rng.choice(_WORDS["counted"])
        .replace("{when}", rng.choice(_WORDS["occasions"]))
        .replace("{thing}", rng.choice(_WORDS["things"]))
    )
    if not is_listed:
        one, other = rng.choice(_WORDS["odd_numbers"]).split("/")
    elif rng.random() < 0.4:
        one, other = rng.sample(_WORDS["word_numbers"], 2)
    else:
        first = rng.choice((2, 3, 4, 5, 8, 10, 12, 16, 24, 30, 48, 75, 120, 250, 900))
        one, other = str(first), str(rng.choice((first * 10, first + 1, first * 2, first + 100)))
    return template.format(one), template.format(other)


def _unit(rng: Random, is_listed: bool) -> tuple[str, str]:
    is_weight = rng.random() < 0.5
    one, other = rng.sample(_WORDS[f"{'weights' if is_weight else 'times'}{'' if is_listed else '_unlisted'}"], 2)
    slots = {"n": str(rng.randrange(2, 60)), "stuff": rng.choice(_WORDS["stuff"])}
    slots |= {"thing": rng.choice(_WORDS["things"]), "when": rng.choice(_WORDS["occasions"])}
    template = rng.choice(_WORDS["measured"] if is_weight else _WORDS["timed"])
    return template.format(u=one, **slots), template.format(u=other, **slots)


def _direction(rng: Random, is_listed: bool) -> tuple[str, str]:
    one, other = rng.sample(rng.choice((_WORDS["ends"], _WORDS["ends_technical"])), 2)
    if is_listed and rng.random() < 0.4:
        (do, doing), (do2, doing2) = (each.split("/") for each in rng.sample(_WORDS["doings"], 2))
        slots = {"do": do, "doing": doing, "do2": do2, "doing2": doing2, "a": one}
        slots["thing"], slots["other"] = rng.sample(_WORDS["things"], 2)
        kept, asked = rng.choice(_WORDS["turned_forms"]).split(" → ")
        return kept.format(**slots), asked.format(**slots)
    template = rng.choice(_WORDS["turned"] if is_listed else _WORDS["turned_unlisted"])
    return template.format(a=one, b=other), template.format(a=other, b=one)


def _name(rng: Random, is_listed: bool) -> tuple[str, str]:
    """No name is in any list: here "listed" ones have the capital that tells them, the others are in small letters."""
    people = rng.random() < 0.5
    template = rng.choice(_WORDS["named_person"] if people else _WORDS["named"])
    one, other = (template.format(name) for name in rng.sample(_WORDS["people"] if people else _WORDS["places"], 2))
    return (one, other) if is_listed else (one.lower(), other.lower())


def _verb(rng: Random, is_listed: bool) -> tuple[str, str]:
    template = (
        rng.choice(_WORDS["acted"])
        .replace("{thing}", rng.choice(_WORDS["things"]))
        .replace("{when}", rng.choice(_WORDS["occasions"]))
    )
    one, other = rng.choice(_WORDS["opposite_verbs"]).split("/") if is_listed else rng.sample(_WORDS["other_verbs"], 2)
    return template.format(one), template.format(other)


_MAKERS: Final[dict[Kind, Callable[[Random, bool], Sequence[str]]]] = {
    "negation": _negation,
    "number": _number,
    "unit": _unit,
    "direction": _direction,
    "name": _name,
    "verb": _verb,
}
