"""A made-up world for predictors: sums that a small model can do, and stories that it cannot."""

from __future__ import annotations

import random

from routing_policies.quality.confidence import TokenOdds
from routing_policies.quality.prompt import Prompt
from routing_policies.quality.training.outcome import PairOutcome, outcome_of

_EASY = (
    "What is {a} plus {b}?",
    "Please add {a} and {b}.",
    "Tell me the sum of {a} and {b}.",
    "How much is {a} + {b}?",
)
_HARD = (
    "Write a story about a {c} and a {d}, in which nobody speaks.",
    "Why would the {c} be afraid of the {d}?",
    "Explain to a {c} what a {d} is for.",
    "Which of the {c} and the {d} came first, and who says so?",
)
_THINGS = ("lamp", "river", "king", "table", "cat", "bridge", "clock", "garden", "letter", "ship")


def prompt(rng: random.Random, *, is_hard: bool) -> Prompt:
    """One prompt of a kind."""
    text = rng.choice(_HARD if is_hard else _EASY).format(
        a=rng.randrange(100), b=rng.randrange(100), c=rng.choice(_THINGS), d=rng.choice(_THINGS)
    )
    return Prompt(text, num_chars=len(text))


def outcomes(seed: int, num: int, *, noise: float = 0.05) -> list[tuple[Prompt, PairOutcome]]:
    """Prompts and what the pair made of them; a sure first token goes with a right answer."""
    rng = random.Random(seed)
    found = []
    for _ in range(num):
        is_hard = rng.random() < 0.4
        requested = prompt(rng, is_hard=is_hard)
        is_right = (rng.random() < noise) if is_hard else (rng.random() > noise)
        logprob = -rng.random() * (0.2 if is_right else 3.0)
        odds = (TokenOdds(logprob, 3.0 + logprob),) * 3
        found.append((requested, outcome_of(requested, float(is_right), 1.0, odds=odds, num_tokens=3)))
    return found
