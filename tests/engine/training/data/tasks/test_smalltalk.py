"""Small talk has fixed replies."""

from __future__ import annotations

import random

from engine.training.data.forms import unmarked
from engine.training.data.tasks import smalltalk
from engine.training.data.tasks.smalltalk import TOPICS


def test_no_line_belongs_to_two_replies() -> None:
    lines = [(unmarked(line).casefold(), reply) for reply, frames in TOPICS for line in (*frames.train, *frames.test)]
    replies: dict[str, set[str]] = {}
    for line, reply in lines:
        replies.setdefault(line, set()).add(reply)
    assert {line: found for line, found in replies.items() if len(found) > 1} == {}


def test_every_reply_comes_up_and_answers_one_of_its_lines() -> None:
    rng = random.Random(1)
    of_line = {unmarked(line).casefold(): reply for reply, frames in TOPICS for line in frames.test}
    examples = [smalltalk.make(rng, "test", "easy") for _ in range(300)]
    assert {example.answer for example in examples} == {reply for reply, _ in TOPICS}
    for example in examples:
        assert of_line[unmarked(example.prompt).casefold()] == example.answer
