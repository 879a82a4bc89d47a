"""Extraction task: text in, JSON out."""

import json
import random
from collections.abc import Mapping

from engine.training.data.example import Difficulty, Example, Frames, Split, user
from engine.training.data.facts import COUNTRIES, PRODUCTS
from engine.training.data.words import COLOURS, DAYS, SURNAMES, TOWNS, first_name

INSTRUCTION = Frames(
    ("Extract {f} as JSON: {t}", "Give me {f} as JSON. {t}", "Return JSON with {f}. Text: {t}", "JSON with {f}: {t}",
     "Read this and answer in JSON with {f}: {t}", "{t} Extract {f} as JSON.", "{t}\nWrite {f} as JSON.",
     "{t}\nJSON with {f}, please.", "From this text, give me {f} as JSON: {t}", "Please return {f} as JSON: {t}",
     "{t}\nPlease extract {f} as JSON.", "Take {f} from this text and write JSON: {t}"),
    ("Please extract {f} as JSON: {t}", "{t}\nReturn JSON with {f}.",
     "From this text, extract {f} as JSON: {t}"))  # fmt: skip
TEXTS: Mapping[str, Frames] = {
    "order": Frames(
        ("{name} ordered {quantity} of the {item} in {colour}, to be sent to {country}.",
         "New order by {name}: {quantity} times the {item}, colour {colour}, destination {country}.",
         "Please send {quantity} pieces of the {item} in {colour} to {name} in {country}.",
         "In {country}, {name} is waiting for {quantity} of our {item} in {colour}."),
        ("{name} from {country} wants {quantity} of the {item} in {colour}.",
         "Order: {quantity} times the {item} in {colour}, for {name} in {country}.")),
    "booking": Frames(
        ("{name} booked a table for {guests} people on {day} at {time} in {town}.",
         "Booking for {day}, {time}: {name} with {guests} guests, {town}.",
         "On {day} at {time} {name} will come to {town} with {guests} people.",
         "Our place in {town} expects {name} and {guests} guests on {day} at {time}."),
        ("In {town}, {name} booked for {guests} people on {day} at {time}.",
         "{name} will come to {town} on {day} at {time} with {guests} guests.")),
}  # fmt: skip
PEOPLE_LINE = Frames(
    ("{name} lives in {town} and paid {amount} euros.", "{name} of {town} paid {amount} euros.",
     "From {town} came {name}, who paid {amount} euros."),
    ("{name} from {town} paid {amount} euros.",))  # fmt: skip
LIST_INSTRUCTION = Frames(
    ("Extract name, town and amount of everyone as a JSON list: {t}",
     "{t} Give me a JSON list with name, town and amount.",
     "JSON list of all people with name, town and amount: {t}",
     "Please write a JSON list with name, town and amount: {t}",
     "{t}\nReturn name, town and amount of everyone as a JSON list."),
    ("Return a JSON list with name, town and amount: {t}",))  # fmt: skip


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Return a task that asks for fields of one text, or of several people, as JSON."""
    if difficulty == "hard" and rng.random() < 0.5:
        text, answer = _people(rng, split, rng.randint(3, 4))
    elif difficulty == "medium" and rng.random() < 0.2:
        text, answer = _people(rng, split, rng.randint(1, 2))
    else:
        text, answer = _record(rng, split, difficulty)
    return Example(messages=(user(text),), answer=json.dumps(answer), task="extraction", difficulty=difficulty)


def _record(rng: random.Random, split: Split, difficulty: Difficulty) -> tuple[str, object]:
    kind = rng.choice(tuple(TEXTS))
    record = _order(rng, split) if kind == "order" else _booking(rng, split)
    text = TEXTS[kind].pick(rng, split).format(**record)
    count = {"easy": rng.randint(1, 2), "medium": 3, "hard": rng.randint(4, 5)}[difficulty]
    fields = rng.sample(tuple(record), count)
    if difficulty == "hard":
        other_kind = rng.choice(tuple(TEXTS))
        other = _order(rng, split) if other_kind == "order" else _booking(rng, split)
        text = f"{text} Not this one: {TEXTS[other_kind].pick(rng, split).format(**other)}"
    named = [f"the {field}" for field in fields] if rng.random() < 0.2 else fields
    listed = named[0] if count == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return INSTRUCTION.pick(rng, split).format(f=listed, t=text), {field: record[field] for field in fields}


def _full_name(rng: random.Random, split: Split) -> str:
    return f"{first_name(rng, split)} {rng.choice(SURNAMES)}"


def _order(rng: random.Random, split: Split) -> dict[str, str | int]:
    return {
        "name": _full_name(rng, split), "quantity": rng.randint(2, 60), "item": rng.choice(tuple(PRODUCTS)),
        "colour": rng.choice(COLOURS), "country": rng.choice(tuple(COUNTRIES)),
    }  # fmt: skip


def _booking(rng: random.Random, split: Split) -> dict[str, str | int]:
    return {
        "name": _full_name(rng, split), "guests": rng.randint(2, 30), "day": rng.choice(DAYS),
        "time": f"{rng.randint(9, 21)}:{rng.choice(('00', '15', '30', '45'))}", "town": rng.choice(TOWNS),
    }  # fmt: skip


def _amount(rng: random.Random) -> int:
    """Return an amount of one, two or three digits."""
    return rng.randint(2, rng.choice((9, 99, 99, 999)))


def _people(rng: random.Random, split: Split, count: int) -> tuple[str, object]:
    records = [
        {"name": first_name(rng, split), "town": rng.choice(TOWNS), "amount": _amount(rng)} for _ in range(count)
    ]
    text = " ".join(PEOPLE_LINE.pick(rng, split).format(**record) for record in records)
    return LIST_INSTRUCTION.pick(rng, split).format(t=text), records
