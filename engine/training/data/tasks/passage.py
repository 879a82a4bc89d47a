"""Passage task: questions about a text in the prompt, with the relevant sentence anywhere."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.training.data.example import Difficulty, Example, ExampleMessage, Frames, Split, assistant, user
from engine.training.data.words import ANIMALS, COLOURS, DAYS, FOODS, JOBS, ROOMS, TOWNS, WORDS, people

UNKNOWN = "I don't know."


@dataclass(frozen=True, slots=True)
class Theme:
    """One kind of statement in a passage: its wordings, its questions and its values."""

    say: tuple[str, ...]
    questions: Frames
    values: Sequence[str]


THEMES = (
    Theme(("{n} lives in {v}.", "{n} has a house in {v}.", "The home of {n} is in {v}."),
          Frames(("Where does {n} live?", "In which town does {n} live?", "Where is the home of {n}?",
                  "Tell me where {n} lives."),
                 ("What town does {n} live in?", "Which town is the home of {n}?")), TOWNS),
    Theme(("{n} works as a {v}.", "{n} earns money as a {v}.", "By trade {n} is a {v}."),
          Frames(("What does {n} work as?", "What is the job of {n}?", "Tell me the job of {n}.",
                  "How does {n} earn money?"),
                 ("What job does {n} have?", "What is the trade of {n}?")), JOBS),
    Theme(("{n} likes the colour {v}.", "The favourite colour of {n} is {v}.", "{n} paints everything {v}."),
          Frames(("What colour does {n} like?", "Which colour does {n} like best?",
                  "Tell me the favourite colour of {n}."),
                 ("What is the favourite colour of {n}?", "Which is the colour of {n}?")), COLOURS),
    Theme(("{n} has a {v} as a pet.", "The pet of {n} is a {v}.", "{n} walks a {v} every day."),
          Frames(("What pet does {n} have?", "Which animal does {n} have?", "Tell me the pet of {n}."),
                 ("What is the pet of {n}?", "Which pet does {n} have?")), ANIMALS),
    Theme(("{n} eats {v} for dinner.", "The favourite food of {n} is {v}.", "{n} cooks {v} all the time."),
          Frames(("What does {n} eat?", "Which food does {n} like?", "Tell me the favourite food of {n}."),
                 ("What is the favourite food of {n}?", "What food does {n} eat?")), FOODS),
    Theme(("{n} will arrive on {v}.", "{n} is coming on {v}.", "On {v} we expect {n}."),
          Frames(("When will {n} arrive?", "On which day does {n} come?", "Tell me when {n} is coming."),
                 ("On which day will {n} arrive?", "When does {n} come?")), DAYS),
    Theme(("{n} keeps the key in the {v}.", "{n} hid the key in the {v}.", "The key of {n} lies in the {v}."),
          Frames(("Where is the key of {n}?", "Where does {n} keep the key?", "In which room is the key of {n}?"),
                 ("Where did {n} hide the key?", "Which room has the key of {n}?")), ROOMS),
    Theme(("The password of {n} is {v}.", "{n} uses the password {v}.", "{n} logs in with the word {v}."),
          Frames(("What is the password of {n}?", "Which password does {n} use?", "Tell me the password of {n}."),
                 ("What password does {n} use?", "Which is the password of {n}?")), WORDS),
    Theme(("{n} sits at desk {v}.", "The desk of {n} has number {v}.", "{n} works at desk number {v}."),
          Frames(("At which desk does {n} sit?", "What is the desk number of {n}?", "Tell me the desk of {n}."),
                 ("Which desk number does {n} have?", "What desk does {n} sit at?")), tuple(map(str, range(10, 100)))),
    Theme(("{n} is looking for a {v}.", "{n} wants to buy a {v}.", "A {v} is what {n} needs."),
          Frames(("What is {n} looking for?", "What does {n} want to buy?", "Tell me what {n} needs."),
                 ("What does {n} need?", "What does {n} look for?")), WORDS),
)  # fmt: skip
NEIGHBOUR = ("{a} lives next to {b}.", "The neighbour of {a} is {b}.")
NEIGHBOUR_NAME = "the neighbour of {a}"
FILLER_SUBJECTS = ("The wind", "The old road", "The market", "The weather", "The river", "The morning train",
                   "The library",
                   "The town hall", "The ferry", "The long winter", "The new bridge", "The little garden")  # fmt: skip
FILLER_VERBS = ("was quiet", "looked better than before", "is known to everyone", "did not change much", "felt strange",
                "was late again", "took most of the afternoon", "needs some repair", "pleased the visitors",
                "will be closed soon", "made people smile", "was the talk of the week")  # fmt: skip
FILLER_ENDS = (
    "",
    " that day",
    " as always",
    " in spring",
    " for once",
    " after lunch",
    " this year",
    " again and again",
)
LAYOUT = Frames(
    ("{p}\n\n{q}", "Read this text: {p}\n\n{q}", "{p}\nQuestion: {q}", "Text: {p}\nQuestion: {q}",
     "Use this text. {p}\n\n{q}",
     "{q}\n\n{p}", "Here are some notes. {p}\n{q}", "Notes: {p}\n\n{q}", "Read this. {p}\n\nQuestion: {q}",
     "{p}\n\nNow answer: {q}"),
    ("Read the text and answer. {p}\n\n{q}", "Notes: {p}\n\nQuestion: {q}", "{p}\n\nQuestion: {q}"))  # fmt: skip
TABLE_LAYOUT = Frames(
    ("{p}\nWhat is the value of {q}?", "Look up {q}:\n{p}", "{p}\n\n{q}?", "Table:\n{p}\nGive me the entry for {q}.",
     "{p}\nLook up {q}.", "{p}\n\nWhich entry belongs to {q}?", "Table:\n{p}\nWhat is the entry of {q}?"),
    ("{p}\n\nWhat is the entry for {q}?", "Table:\n{p}\nLook up {q}."))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement: name, theme and value."""

    name: str
    theme: Theme
    value: str


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Return a passage and a question; training adds earlier questions about the same passage."""
    if difficulty == "easy" and rng.random() < 0.3:
        return _table(rng, split)
    facts, sentences, chains = _passage(rng, split, difficulty)
    turns = 1 if split == "test" else rng.randint(2, 9)
    messages: list[ExampleMessage] = []
    answer = ""
    for turn in range(turns):
        question, next_answer = _question(rng, split, facts, chains)
        if turn == 0:
            question = LAYOUT.pick(rng, split).format(p=" ".join(sentences), q=question)
        else:
            messages.append(assistant(answer))
        messages.append(user(question))
        answer = next_answer
    return Example(messages=tuple(messages), answer=answer, task="passage", difficulty=difficulty)


def missing(rng: random.Random, split: Split) -> Example:
    """Return a question that its passage does not answer."""
    facts, sentences, _ = _passage(rng, split, rng.choice(("easy", "medium")))
    said = {(fact.name, fact.theme.say) for fact in facts}
    names = sorted({fact.name for fact in facts}) + people(rng, split, 2)
    while True:
        name, theme = rng.choice(names), rng.choice(THEMES)
        if (name, theme.say) not in said:
            break
    question = theme.questions.pick(rng, split).format(n=name)
    text = LAYOUT.pick(rng, split).format(p=" ".join(sentences), q=question)
    return Example(messages=(user(text),), answer=UNKNOWN, task="unknown", difficulty="hard")


def statements(rng: random.Random, split: Split, num_facts: int, num_names: int) -> list[Fact]:
    """Return facts about a few people, no person twice in one theme."""
    names = people(rng, split, num_names)
    pairs = [(name, theme) for name in names for theme in THEMES]
    return [
        Fact(name, theme, rng.choice(theme.values)) for name, theme in rng.sample(pairs, min(num_facts, len(pairs)))
    ]


def _passage(rng: random.Random, split: Split, difficulty: Difficulty) -> tuple[list[Fact], list[str], dict[str, str]]:
    match difficulty:
        case "easy":
            num_facts, num_filler, num_names = rng.randint(1, 6), rng.randint(0, 2), rng.randint(2, 5)
        case "medium":
            num_facts, num_filler, num_names = rng.randint(7, 18), rng.randint(2, 8), rng.randint(4, 10)
        case "hard":
            num_facts, num_filler, num_names = rng.randint(18, 56), rng.randint(6, 38), rng.randint(8, 24)
    facts = statements(rng, split, num_facts, num_names)
    sentences = [rng.choice(fact.theme.say).format(n=fact.name, v=fact.value) for fact in facts]
    sentences += [filler(rng) for _ in range(num_filler)]
    chains: dict[str, str] = {}
    if difficulty == "hard":
        strangers = people(rng, split, 3)
        known = sorted({fact.name for fact in facts})
        chains = {name: rng.choice(known) for name in strangers if name not in known}
        sentences += [rng.choice(NEIGHBOUR).format(a=a, b=b) for a, b in chains.items()]
    rng.shuffle(sentences)
    return facts, sentences, chains


def filler(rng: random.Random) -> str:
    """Return a sentence without useful content."""
    return f"{rng.choice(FILLER_SUBJECTS)} {rng.choice(FILLER_VERBS)}{rng.choice(FILLER_ENDS)}."


def _question(rng: random.Random, split: Split, facts: Sequence[Fact], chains: dict[str, str]) -> tuple[str, str]:
    if chains and rng.random() < 0.5:
        stranger = rng.choice(list(chains))
        fact = rng.choice([fact for fact in facts if fact.name == chains[stranger]])
        return fact.theme.questions.pick(rng, split).format(n=NEIGHBOUR_NAME.format(a=stranger)), fact.value
    fact = rng.choice(facts)
    return fact.theme.questions.pick(rng, split).format(n=fact.name), fact.value


def _table(rng: random.Random, split: Split) -> Example:
    keys = people(rng, split, rng.randint(1, 10)) if rng.random() < 0.5 else rng.sample(WORDS, rng.randint(1, 10))
    values = {key: rng.choice((rng.choice(WORDS), str(rng.randint(10, 99)))) for key in keys}
    rows = "\n".join(f"{key}: {value}" for key, value in values.items())
    turns = 1 if split == "test" else rng.randint(1, 7)
    asked = [rng.choice(keys) for _ in range(turns)]
    messages = [user(TABLE_LAYOUT.pick(rng, split).format(p=rows, q=asked[0]))]
    for before, key in pairwise(asked):
        messages += [assistant(values[before]), user(rng.choice(("And {q}?", "Now {q}.", "{q}?")).format(q=key))]
    return Example(messages=tuple(messages), answer=values[asked[-1]], task="passage", difficulty="easy")
