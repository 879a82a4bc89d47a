"""Follow-up task: questions that depend on the messages before."""

import random
from itertools import pairwise

from engine.training.data.example import (
    Difficulty,
    Example,
    ExampleMessage,
    Frames,
    Split,
    assistant,
    other_than,
    user,
)
from engine.training.data.facts import Relation
from engine.training.data.tasks import arithmetic, smalltalk
from engine.training.data.tasks.support import RELATIONS
from engine.training.data.wordings import AND_ENTITY, AND_RELATION, QUESTION, dress

CHANGE = Frames(
    ("Add {b} to that.", "Now add {b}.", "And plus {b}?", "Then add {b}.", "Take away {b}.", "Now subtract {b}.",
     "And minus {b}?", "Please add {b} to it.", "Add another {b}.", "Increase the result by {b}.", "Subtract {b}.",
     "Please subtract {b} from it.", "Reduce the result by {b}.", "Take {b} away from the result."),
    ("Add {b} to the result.", "Subtract {b} from that."))  # fmt: skip
CHEAPEST = Frames(
    ("Which of them is the cheapest?", "So which is the cheapest?", "Which one costs the least?",
     "And the cheapest of these?",
     "Tell me the cheapest one.", "What is the cheapest of them?", "Then which has the lowest price?"),
    ("Which one is the cheapest?", "And which of them costs the least?"))  # fmt: skip
SUBTRACTS = ("Take", "subtract", "Subtract", "minus", "Reduce")


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Return a follow-up question.

    Easy: another entity. Medium: another question, or several changes. Hard: work with the answers before.
    """
    if difficulty == "easy":
        messages, answer = _shop(rng, split, "e")
    elif difficulty == "medium":
        messages, answer = _shop(rng, split, rng.choice(("r", "r", "er", "re", "ere", "der", "dre", "rer")))
    else:
        messages, answer = rng.choice((_sum, _cheapest))(rng, split)
    return Example(messages=tuple(messages), answer=answer, task="followup", difficulty=difficulty)


def _shop(rng: random.Random, split: Split, moves: str) -> tuple[list[ExampleMessage], str]:
    """Return a conversation of one move per letter: (e)ntity changes, (r)elation changes, (d)etour."""
    relation = rng.choice(list(RELATIONS.values()))
    used: set[str] = set()
    entity = other_than(rng, list(relation.values), used)
    messages = [user(dress(rng, split, QUESTION[relation.name].pick(rng, split).format(x=entity)))]
    for move in moves:
        messages.append(assistant(relation.sentence(entity)))
        if move == "d":
            detour = smalltalk.make(rng, split, "easy")
            messages += [*detour.messages, assistant(detour.answer)]
            move = "e"
        if move == "e":
            entity = other_than(rng, list(relation.values), used)
            messages.append(user(AND_ENTITY[relation.kind].pick(rng, split).format(x=entity)))
        else:
            relation = _another(rng, relation)
            messages.append(user(AND_RELATION[relation.name].pick(rng, split)))
    return messages, relation.sentence(entity)


def _another(rng: random.Random, relation: Relation) -> Relation:
    return rng.choice([r for r in RELATIONS.values() if r.kind == relation.kind and r.name != relation.name])


def _cheapest(rng: random.Random, split: Split) -> tuple[list[ExampleMessage], str]:
    """Return a conversation about two or three prices and then the lowest of them."""
    relation = RELATIONS["price"]
    while True:
        items = rng.sample(list(relation.values), rng.choice((2, 3, 3)))
        prices = [int(relation.values[item]) for item in items]
        if prices.count(min(prices)) == 1:
            break
    messages = [user(dress(rng, split, QUESTION["price"].pick(rng, split).format(x=items[0])))]
    for before, item in pairwise(items):
        question = AND_ENTITY["product"].pick(rng, split).format(x=item)
        messages += [assistant(relation.sentence(before)), user(question)]
    messages += [assistant(relation.sentence(items[-1])), user(CHEAPEST.pick(rng, split))]
    return messages, f"The {items[prices.index(min(prices))]} is the cheapest."


def _sum(rng: random.Random, split: Split) -> tuple[list[ExampleMessage], str]:
    first = arithmetic.make(rng, split, "easy")
    frame = CHANGE.pick(rng, split)
    value, change = int(first.answer), rng.randint(1, rng.choice((9, 9, 20)))
    is_minus = any(word in frame for word in SUBTRACTS)
    answer = str(value - change if is_minus else value + change)
    return [*first.messages, assistant(first.answer), user(frame.format(b=change))], answer
