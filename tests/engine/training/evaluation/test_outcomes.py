"""Outcomes of prompts: which model was right, and how sure its first tokens were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from engine.training.data.example import Example, user
from engine.training.evaluation.decode import GreedyDecoder, Reply
from engine.training.evaluation.outcomes import FIRST_TOKENS, outcomes, training_set


class Fixed:
    """States the same to everything, in so many tokens."""

    def __init__(self, text: str, num_tokens: int) -> None:
        self._reply = Reply(text, [-0.123456] * num_tokens, [1.0] * num_tokens)

    def replies(self, examples: Sequence[Example]) -> list[Reply]:
        return [self._reply] * len(examples)


def test_an_outcome_reports_who_was_right_and_the_odds_of_the_first_tokens() -> None:
    example = Example(messages=(user("1 + 1"),), answer="2", task="arithmetic", difficulty="easy")
    decoders = {"small": cast(GreedyDecoder, Fixed("3", 1)), "large": cast(GreedyDecoder, Fixed("2", 60))}
    (found,) = outcomes([example], decoders)
    assert found["outcomes"] == {"small": 0.0, "large": 1.0}
    assert found["tokens"] == {"small": 1, "large": 60}
    assert found["logprobs"] == {"small": [-0.1235], "large": [-0.1235] * FIRST_TOKENS}
    assert found["category"] == "arithmetic easy"


def test_every_example_has_an_outcome_in_its_order_over_many_chunks() -> None:
    examples = [
        Example(messages=(user(str(number)),), answer=str(number), task="t", difficulty="easy") for number in range(600)
    ]
    found = list(outcomes(examples, {"small": cast(GreedyDecoder, Fixed("7", 1))}))
    assert [outcome["messages"] for outcome in found] == [list(example.messages) for example in examples]
    assert [number for number, outcome in enumerate(found) if outcome["outcomes"] == {"small": 1.0}] == [7]


def test_a_training_set_is_that_of_its_seed_without_repetition() -> None:
    tasks = ("arithmetic", "passage", "smalltalk")
    first = training_set(3, 20, tasks)
    assert first == training_set(3, 20, tasks)
    assert first != training_set(4, 20, tasks)
    assert len({repr(example.messages) for example in first}) == len(first)
    assert {example.task for example in first} == set(tasks)
    assert {example.difficulty for example in first if example.task == "smalltalk"} == {"easy"}


def test_of_passages_some_have_their_question_in_the_same_message() -> None:
    passages = training_set(5, 40, ("passage",))
    users = [[message for message in example.messages if message["role"] == "user"] for example in passages]
    assert {len(found) == 1 for found in users} == {True, False}
