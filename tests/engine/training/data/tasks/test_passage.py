"""Questions about a text, and what it does not state."""

from __future__ import annotations

import random

from engine.training.data.tasks import (
    passage,
)
from engine.training.data.tasks.passage import UNKNOWN


def test_a_passage_has_up_to_a_thousand_tokens_with_the_needle_anywhere() -> None:
    rng = random.Random(3)
    examples = [passage.make(rng, "test", "hard") for _ in range(200)]
    assert max(len(example.prompt) for example in examples) > 2500
    places = [e.prompt.find(f" {e.answer}") / len(e.prompt) for e in examples]
    assert min(places) < 0.2
    assert max(places) > 0.8


def test_what_a_passage_does_not_state_is_unknown() -> None:
    rng = random.Random(4)
    assert all(passage.missing(rng, "test").answer == UNKNOWN for _ in range(20))
