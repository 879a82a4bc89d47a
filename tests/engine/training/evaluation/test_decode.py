"""Greedy answers in batches: each is what it would be alone, however soon the others end."""

from __future__ import annotations

import pytest

from engine.bundled import model_dir
from engine.training.data.example import Example, user
from engine.training.evaluation.decode import GreedyDecoder


def example(text: str) -> Example:
    return Example(messages=(user(text),), answer="", task="strings", difficulty="easy")


def test_an_answer_is_the_same_beside_shorter_and_longer_ones() -> None:
    examples = [example(text) for text in ("What is 7 plus 5?", "Count from 3 to 14.", "Hello", "Repeat: sand cup")]
    decoder = GreedyDecoder(model_dir("small"))
    together = decoder.replies(examples)
    assert len({len(reply.logprobs) for reply in together}) > 2  # they end one after the other
    for one, reply in zip(examples, together, strict=True):
        (alone,) = decoder.replies([one])
        assert reply.text == alone.text
        assert reply.logprobs == pytest.approx(alone.logprobs, abs=1e-3)
        assert reply.margins == pytest.approx(alone.margins, abs=1e-2)


def test_a_reply_reports_of_its_tokens_and_not_of_the_one_that_ends_it() -> None:
    decoder = GreedyDecoder(model_dir("small"))
    (reply,) = decoder.replies([example("What is 3 plus 4?")])
    assert reply.text == "7"
    assert (len(reply.logprobs), len(reply.margins)) == (1, 1)
