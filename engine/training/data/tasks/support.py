"""Support task: questions about the shop for one fact, a rarer fact, or two facts at once."""

import random
from collections.abc import Mapping

from engine.training.data.example import Difficulty, Example, Frames, Split, is_held_out, user
from engine.training.data.facts import POLICIES, Relation, relations
from engine.training.data.wordings import QUESTION, dress

RELATIONS = {relation.name: relation for relation in relations()}
PAIRS: tuple[tuple[str, str, Frames], ...] = (
    ("shipping", "days", Frames(
        ("How much is shipping to {x} and how long does it take?", "Price and delivery time for {x}, please.",
         "What does delivery to {x} cost and how many days does it take?", "I live in {x}. Shipping price and time?",
         "Tell me the shipping cost and the delivery time for {x}."),
        ("What does shipping to {x} cost and how long does it take?", "Shipping price and delivery time for {x}?"))),
    ("shipping", "express", Frames(
        ("How much are standard and express shipping to {x}?", "What do standard and express to {x} cost?",
         "I live in {x}. What are the standard and the express price?",
         "Compare standard and express shipping to {x}."),
        ("What are the prices of standard and express shipping to {x}?", "Standard and express price for {x}?"))),
    ("opens", "closes", Frames(
        ("What are the opening hours of the {x} branch?", "When does the {x} branch open and close?",
         "From when to when are you open in {x}?", "Tell me the hours of the {x} shop.", "opening hours {x}"),
        ("When do you open and close in {x}?", "What are the hours of the {x} branch?"))),
    ("address", "closes", Frames(
        ("Where is the {x} branch and when does it close?", "Address and closing time in {x}, please.",
         "Tell me where the {x} shop is and how late it is open."),
        ("Where is the shop in {x} and when does it close?", "Tell me the address and the closing time in {x}."))),
    ("price", "warranty", Frames(
        ("How much is the {x} and how long is its warranty?", "Price and warranty of the {x}, please.",
         "What does the {x} cost and what warranty does it have?", "Tell me the price and the warranty of the {x}."),
        ("What does the {x} cost and how long is the warranty?", "What are the price and the warranty of the {x}?"))),
    ("price", "material", Frames(
        ("How much is the {x} and what is it made of?", "Price and material of the {x}, please.",
         "What does the {x} cost and which material is it?", "Tell me the price and the material of the {x}."),
        ("What does the {x} cost and what is it made of?", "What are the price and the material of the {x}?"))),
    ("material", "origin", Frames(
        ("What is the {x} made of and where does it come from?", "Material and origin of the {x}, please.",
         "Tell me the material and the origin of the {x}."),
        ("What is the {x} made of and where is it from?", "What are the material and the origin of the {x}?"))),
    ("unopened", "opened", Frames(
        ("How long can I return {x}, unopened and opened?", "What are the return periods for {x}, opened or not?",
         "Tell me both return windows for {x}."),
        ("What are both return periods for {x}?", "Until when can I return {x}, unopened and opened?"))),
)  # fmt: skip
NAMES: Mapping[str, str] = {
    "shipping": "the shipping price", "days": "the delivery time", "express": "the express price",
    "opens": "the opening time", "closes": "the closing time", "saturday": "the closing time on Saturdays",
    "address": "the address", "extension": "the extension", "price": "the price", "material": "the material",
    "warranty": "the warranty", "origin": "the origin",
}  # fmt: skip
"""Names of facts in a question for two facts in any order."""
TWO: Mapping[str, Frames] = {
    kind: Frames(
        (f"Tell me {{r}} and {{s}} {place}.", f"What are {{r}} and {{s}} {place}?", f"{{r}} and {{s}} {place}",
         f"I need {{r}} and {{s}} {place}.", f"First {{r}}, then {{s}} {place}, please.",
         f"Please say {{r}} and {{s}} {place}."),
        (f"Give me {{r}} and {{s}} {place}.", f"I would like to know {{r}} and {{s}} {place}."))
    for kind, place in (("country", "for {x}"), ("branch", "of the {x} branch"), ("product", "of the {x}"))
}  # fmt: skip
COMPARE: tuple[tuple[str, str, Frames], ...] = (
    ("price", "The {x} is the cheapest.", Frames(
        ("Which is the cheapest: {x}?", "What costs the least: {x}?", "Which of these is the cheapest: {x}?",
         "I can choose between {x}. Which is the cheapest?", "Which one has the lowest price: {x}?", "cheapest of {x}",
         "Tell me the cheapest of {x}.", "What is the cheapest among {x}?", "Which of {x} costs the least?"),
        ("Which one is the cheapest: {x}?", "Which of these costs the least: {x}?"))),
    ("shipping", "Shipping to {x} is the cheapest.", Frames(
        ("Where is shipping the cheapest: {x}?", "Shipping to which country costs the least: {x}?",
         "Which country is the cheapest to ship to: {x}?", "I can ship to {x}. Where is it the cheapest?",
         "Tell me where shipping is the cheapest: {x}.", "Which of {x} has the lowest shipping price?"),
        ("Where does shipping cost the least: {x}?", "Which is the cheapest to ship to: {x}?"))),
)  # fmt: skip


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Return a question for one fact, for a rarer fact or two facts, or for the cheapest of a few."""
    if difficulty == "hard":
        text, answer = _cheapest(rng, split)
    elif difficulty == "medium" and rng.random() < 0.5:
        text, answer = _pair(rng, split) if rng.random() < 0.6 else _any_two(rng, split)
    else:
        text, answer = _single(rng, split, difficulty)
    return Example(messages=(user(dress(rng, split, text)),), answer=answer, task="support", difficulty=difficulty)


def pick_relation(rng: random.Random, difficulty: Difficulty) -> Relation:
    """Return a relation of the difficulty, weighted by its number of facts."""
    pool = [relation for relation in RELATIONS.values() if relation.difficulty == difficulty]
    return rng.choices(pool, [len(relation.values) + 8 for relation in pool])[0]


def _single(rng: random.Random, split: Split, difficulty: Difficulty) -> tuple[str, str]:
    if difficulty == "easy" and rng.random() < 0.12:
        topics, answer = rng.choice(POLICIES)
        return QUESTION["policy"].pick(rng, split).format(x=rng.choice(topics)), answer
    relation = pick_relation(rng, difficulty)
    entity = rng.choice(list(relation.values))
    return QUESTION[relation.name].pick(rng, split).format(x=entity), relation.sentence(entity)


def _pair(rng: random.Random, split: Split) -> tuple[str, str]:
    first, second, frames = rng.choice(PAIRS)
    entity = rng.choice(list(RELATIONS[first].values))
    answer = f"{RELATIONS[first].sentence(entity)} {RELATIONS[second].sentence(entity)}"
    return frames.pick(rng, split).format(x=entity), answer


def _any_two(rng: random.Random, split: Split) -> tuple[str, str]:
    """Return a question for two facts of one entity, answered in the order of the question."""
    first = RELATIONS[rng.choice(tuple(NAMES))]
    second = rng.choice([r for r in RELATIONS.values() if r.kind == first.kind and r.name != first.name])
    entity = rng.choice(list(first.values))
    text = TWO[first.kind].pick(rng, split).format(r=NAMES[first.name], s=NAMES[second.name], x=entity)
    return text, f"{first.sentence(entity)} {second.sentence(entity)}"


def _cheapest(rng: random.Random, split: Split) -> tuple[str, str]:
    name, answer, frames = rng.choice(COMPARE)
    values = RELATIONS[name].values
    while True:
        chosen = rng.sample(list(values), rng.choice((2, 3, 3)))
        prices = [int(values[entity]) for entity in chosen]
        if prices.count(min(prices)) == 1 and is_held_out(name, *sorted(chosen)) == (split == "test"):
            break
    article = "the " if RELATIONS[name].kind == "product" else ""
    listed = [f"{article}{entity}" for entity in chosen]
    text = frames.pick(rng, split).format(x=f"{', '.join(listed[:-1])} or {listed[-1]}")
    return text, answer.format(x=chosen[prices.index(min(prices))])
