"""Questions that only make sense with the turns before."""

import random

from engine.bundled.example import Difficulty, Example, Frames, Message, Split, assistant, other_than, user
from engine.bundled.facts import Relation
from engine.bundled.tasks import arithmetic, smalltalk
from engine.bundled.tasks.support import RELATIONS
from engine.bundled.wordings import AND_ENTITY, AND_RELATION, ASK, dress

CHANGE = Frames(
    ("Add {b} to that.", "Now add {b}.", "And plus {b}?", "Then add {b}.", "Take away {b}.", "Now subtract {b}.",
     "And minus {b}?", "Please add {b} to it.", "Add another {b}.", "Increase the result by {b}.", "Subtract {b}.",
     "Please subtract {b} from it.", "Reduce the result by {b}.", "Take {b} away from the result."),
    ("Add {b} to the result.", "Subtract {b} from that."))  # fmt: skip
SUBTRACTS = ("Take", "subtract", "Subtract", "minus", "Reduce")


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Easy: another entity. Medium: another question, or a sum continued. Hard: both changes, or a detour."""
    if difficulty == "easy":
        messages, answer = _shop(rng, split, "e")
    elif difficulty == "medium":
        messages, answer = _sum(rng, split) if rng.random() < 0.3 else _shop(rng, split, "r")
    else:
        messages, answer = _shop(rng, split, rng.choice(("er", "re", "ere", "der", "dre", "rer")))
    return Example(messages=tuple(messages), answer=answer, task="followup", difficulty=difficulty)


def _shop(rng: random.Random, split: Split, moves: str) -> tuple[list[Message], str]:
    """One letter a turn: (e)ntity changes, (r)elation changes, (d)etour."""
    relation = rng.choice(list(RELATIONS.values()))
    used: set[str] = set()
    entity = other_than(rng, list(relation.values), used)
    messages = [user(dress(rng, split, ASK[relation.name].pick(rng, split).format(x=entity)))]
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


def _sum(rng: random.Random, split: Split) -> tuple[list[Message], str]:
    first = arithmetic.make(rng, split, "easy")
    frame = CHANGE.pick(rng, split)
    value, change = int(first.answer), rng.randint(1, 9)
    is_minus = any(word in frame for word in SUBTRACTS)
    change = min(change, value) if is_minus else change
    answer = str(value - change if is_minus else value + change)
    return [*first.messages, assistant(first.answer), user(frame.format(b=change))], answer
