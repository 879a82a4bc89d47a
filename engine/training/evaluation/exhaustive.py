"""Complete test set of small ranges: sums, differences and products with a digit, and counting to a number.

`python -m engine.training.evaluation.evaluate --exhaustive` runs all, in wordings that no training prompt has.
"""

import random
from collections.abc import Iterable

from engine.training.data.example import Difficulty, Example, user
from engine.training.data.tasks import arithmetic, strings

DIGITS, SMALL, TABLES = range(10), range(10, 41), range(11)


def exhaustive_set(seed: int) -> list[Example]:
    """Return all examples; the seed selects the wording of each."""
    rng = random.Random(f"exhaustive:{seed}")
    return [
        *_operations(rng, "+", "digit + digit", ((a, b) for a in DIGITS for b in DIGITS)),
        *_operations(rng, "+", "digit + two digits", ((a, b) for a in DIGITS for b in SMALL)),
        *_operations(rng, "+", "two digits + digit", ((a, b) for a in SMALL for b in DIGITS)),
        *_operations(rng, "-", "digit - digit", ((a, b) for a in DIGITS for b in DIGITS if a >= b)),
        *_operations(rng, "-", "two digits - digit", ((a, b) for a in SMALL for b in DIGITS)),
        *_operations(rng, "-", "digit - digit, below zero", ((a, b) for a in DIGITS for b in DIGITS if a < b)),
        *_operations(rng, "-", "digit - two digits, below zero", ((a, b) for a in DIGITS for b in SMALL)),
        *_operations(rng, "*", "times tables", ((a, b) for a in TABLES for b in TABLES)),
        *(_counting(rng, to, "easy") for to in range(1, 31)),
        *(_counting(rng, to, "medium") for to in range(31, 51)),
    ]


def _operations(rng: random.Random, sign: str, task: str, pairs: Iterable[tuple[int, int]]) -> list[Example]:
    return [_operation(rng, sign, task, a, b) for a, b in pairs]


def _operation(rng: random.Random, sign: str, task: str, a: int, b: int) -> Example:
    text = arithmetic.FRAMES[sign].pick(rng, "test").format(a=a, b=b)
    answer = arithmetic.evaluate(sign, a, b)
    difficulty: Difficulty = "medium" if answer < 0 else "easy"
    return Example(messages=(user(text),), answer=str(answer), task=task, difficulty=difficulty)


def _counting(rng: random.Random, to: int, difficulty: Difficulty) -> Example:
    text = strings.COUNT_TO.pick(rng, "test").format(b=to)
    answer = " ".join(map(str, range(1, to + 1)))
    return Example(messages=(user(text),), answer=answer, task="count to a number", difficulty=difficulty)
