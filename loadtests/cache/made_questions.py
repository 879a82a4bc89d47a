"""Made questions: a small stream of our own, sent again in other words, among neighbours that mean something else."""

from __future__ import annotations

from random import Random
from typing import Final

import numpy as np

from gateway.cache.fitting.questions import Questions

# One topic a line: wordings of one meaning, then, behind the bar, of another that is close to it.
_TOPICS: Final = """
How do I prune {x}? / What is the best way to prune {x}? | How do I graft {x}? / How can I graft {x}?
How often should I water {x}? / How frequently should I water {x}? | How often should I not water {x}?
What does {x} cost? / How much does {x} cost? | What does {x} weigh? / How heavy is {x}?
Where can I buy {x}? / Where do I buy {x}? | Where can I sell {x}? / Where do I sell {x}?
Is it safe to store {x} in a cellar? / Can I safely store {x} in a cellar? | Is it safe to store {x} in a loft?
How long does {x} last? / How many years does {x} last? | How long did {x} last in 1900?
Who invented {x}? / Who was the inventor of {x}? | Who collects {x}? / Who are the collectors of {x}?
How do I clean {x} with vinegar? / How can I clean {x} using vinegar? | How do I clean {x} without vinegar?
"""
_THINGS: Final = (
    *("an olive tree", "a banjo", "a copper kettle", "a canoe", "a beehive", "a sewing machine", "a telescope"),
    *("a wool carpet", "a weather vane", "a sundial", "a bonsai", "a wooden sledge", "a hammock", "a cider press"),
    *("a music box", "a fishing rod", "a rope ladder", "a potting bench", "a snow shovel", "a chess clock"),
)


def made_questions(seed: int) -> Questions:
    """Some hundred, in an order that the seed decides."""
    found: list[tuple[str, int, int]] = []
    for line, topic in enumerate(_TOPICS.strip().splitlines()):
        for number, thing in enumerate(_THINGS):
            component = line * len(_THINGS) + number
            for side, wordings in enumerate(topic.split("|")):
                found += [
                    (text.strip().format(x=thing), 2 * component + side, component) for text in wordings.split("/")
                ]
    Random(seed).shuffle(found)
    texts, question_groups, components = zip(*found, strict=True)
    return Questions(texts=list(texts), question_groups=np.array(question_groups), components=np.array(components))
