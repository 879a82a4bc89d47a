"""Unanswerable questions: the right reply is one fixed sentence."""

import random

from engine.training.data.example import Difficulty, Example, Frames, Split, user
from engine.training.data.facts import PRODUCTS
from engine.training.data.tasks import passage
from engine.training.data.wordings import QUESTION, dress
from engine.training.data.words import TOWNS, WORDS, first_name, made_up_name, split_words

OFF_TOPIC = Frames(
    ("Who won the {w} race?", "Who invented the {w}?", "What is the capital of {n}?", "How tall is {n}?",
     "When was {n} born?",
     "Who wrote the book about the {w}?", "What will the weather be in {n}?", "How many people live in {n}?",
     "What is the meaning of {w} in Latin?", "Who is the president of {n}?", "When did the {w} war end?",
     "What did {n} say yesterday?", "How far is the {w} from the earth?", "Which team plays in {n} tonight?",
     "What is the stock price of {n}?", "Who sings the song about the {w}?", "How old is {n}?", "Where was {n} born?",
     "What is the chemical formula of {w}?", "Why is the {w} so famous?", "Who painted the {w}?", "Who is {n}?",
     "How heavy is {n}?", "How deep is the {w}?", "How large is the {w} of {n}?",
     "Who found the {w}?", "Who won the {w} match?", "What is the name of the wife of {n}?",
     "Who is the queen of {n}?", "How rich is {n}?",
     "How big is the {w}?", "What is the area of {n}?", "Who made the film about the {w}?",
     "How many towns are in {n}?"),
    ("Who discovered the {w}?", "What is the population of {n}?", "Who won the {w} cup?", "How big is {n}?",
     "What is the name of the king of {n}?", "Who wrote the song about the {w}?"))  # fmt: skip
NOT_SERVED = split_words(
    "Albania Argentina Australia Brazil Canada Chile China Cuba Cyprus Egypt Ghana India Japan Jordan Kenya "
    "Mexico Morocco Nepal Nigeria Panama Peru Russia Serbia Tunisia Ukraine Vietnam Thailand Bolivia Ecuador "
    "Mongolia"
)
NOUNS = split_words(
    "shelf lamp kettle blanket mug clock hook chair rug table curtain vase cushion bench chest mirror tray bowl "
    "desk basket pillow stool candle jug frame"
)
KINDS = {
    "country": ("shipping", "days", "express"),
    "branch": ("opens", "closes", "saturday", "address", "extension"),
    "product": ("price", "material", "warranty", "origin"),
}


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Return an unanswerable question.

    Easy: not about the shop. Medium: an entity the shop does not have. Hard: the passage does not contain the answer.
    """
    if difficulty == "hard":
        return passage.missing(rng, split)
    if difficulty == "easy":
        text = OFF_TOPIC.pick(rng, split).format(w=rng.choice(WORDS), n=first_name(rng, split))
    else:
        kind = rng.choice(tuple(KINDS))
        text = QUESTION[rng.choice(KINDS[kind])].pick(rng, split).format(x=_stranger(rng, split, kind))
    return Example(
        messages=(user(dress(rng, split, text)),), answer=passage.UNKNOWN, task="unknown", difficulty=difficulty
    )


def _stranger(rng: random.Random, split: Split, kind: str) -> str:
    """Return a country, town or product that the shop does not have."""
    if kind == "product":
        while (name := f"{rng.choice(WORDS)} {rng.choice(NOUNS)}") in PRODUCTS:
            continue
        return name
    if rng.random() < 0.4:
        return made_up_name(rng, split)
    return rng.choice(NOT_SERVED if kind == "country" else TOWNS)
