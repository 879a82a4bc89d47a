"""Wordings of one meaning: two questions of a line have one answer, and a cache should serve it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from loadtests.cache.question_pairs.templates import lines_of, two_of

_WORDINGS: Final = """
How do I {do} {thing} {when}? ¦ How can I {do} {thing} {when}? ¦ What is the best way to {do} {thing} {when}?
How do you {do} {thing}? ¦ How does one {do} {thing}? ¦ How can I {do} {thing}? ¦ how to {do} {thing}
Do I have to {do} {thing} {when}? ¦ Must I {do} {thing} {when}? ¦ Am I required to {do} {thing} {when}?
Am I allowed to {do} {thing} {when}? ¦ May I {do} {thing} {when}? ¦ Am I permitted to {do} {thing} {when}?
Should I {do} {thing} {when}? ¦ Am I supposed to {do} {thing} {when}? ¦ Ought I to {do} {thing} {when}?
Can I {do} {thing} {when}? ¦ Could I {do} {thing} {when}? ¦ Am I able to {do} {thing} {when}?
Which tools do I need to {do} {thing}? ¦ What tools do I need to {do} {thing}?
Where can I buy {thing} in {town}? ¦ Where do I buy {thing} in {town}? ¦ Where in {town} can I buy {thing}?
What is the population of {town}? ¦ What's the population of {town}? ¦ what is the population of {town}
Who is the mayor of {town}? ¦ Who's the mayor of {town}? ¦ Who is the mayor of the town of {town}?
Will the ferry to {town} leave at noon? ¦ Is the ferry to {town} going to leave at noon?
Do all tenants pay for {thing}? ¦ Does every tenant pay for {thing}? ¦ Does each tenant pay for {thing}?
How far is {town} from {other_town}? ¦ How far is it from {town} to {other_town}?
What does // do in Python? ¦ What does the // operator do in Python? ¦ What does `//` do in Python?
How do I copy a folder with cp -r? ¦ How can I copy a folder with cp -r? ¦ How do I copy a directory with cp -r?
What does x[1:] return in Python? ¦ In Python, what does x[1:] return? ¦ what does x[1:] return in python
What is stored in /etc/hosts? ¦ What's stored in /etc/hosts? ¦ What is kept in /etc/hosts?
Can {person} sue {other_person} {when}? ¦ Could {person} sue {other_person} {when}?
"""


def paraphrases(seed: int) -> Iterator[tuple[str, str]]:
    """Give two wordings of one meaning without end; the same for the same seed."""
    rng, lines = Random(f"paraphrases {seed}"), lines_of(_WORDINGS)
    while True:
        yield two_of(rng.choice(lines), rng)


def typos(texts: list[str], seed: int) -> Iterator[tuple[str, str]]:
    """Give a text, and the text with one slip: letters exchanged, left out, doubled or hit beside."""
    rng = Random(f"typos {seed}")
    for text in texts:
        yield text, with_typo(text, rng)


_BESIDE: Final = {
    letter: row[max(0, at - 1) : at] + row[at + 1 : at + 2]
    for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm")
    for at, letter in enumerate(row)
}


def with_typo(text: str, rng: Random) -> str:
    """Return the text with one slip in a word of at least four letters, if it has one."""
    words = text.split(" ")
    places = [at for at, word in enumerate(words) if len(word.strip("?.,!")) >= 4 and word.strip("?.,!").isalpha()]
    if not places:
        return text
    at = rng.choice(places)
    word = words[at]
    size = len(word.strip("?.,!"))
    kind, place = rng.choice(("exchanged", "left out", "doubled", "beside")), rng.randrange(1, size - 1)
    if kind == "exchanged":
        word = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    elif kind == "left out":
        word = word[:place] + word[place + 1 :]
    elif kind == "doubled":
        word = word[:place] + word[place] + word[place:]
    else:
        word = word[:place] + rng.choice(_BESIDE.get(word[place].lower(), word[place])) + word[place + 1 :]
    words[at] = word
    return " ".join(words)
