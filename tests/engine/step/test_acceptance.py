"""Chosen tokens are appended up to the one that ends the sequence."""

from __future__ import annotations

from typing import Any, cast

import pytest

from engine.sampling.grammar import GrammarState
from engine.step.acceptance import take_tokens
from tests.engine.core.test_scheduler_grammar import FakeGrammar
from tests.engine.step.sequences import sequence


@pytest.mark.parametrize(
    ("name", "params", "chosen", "taken", "reason"),
    [
        ("goes on", {"max_tokens": 9}, [4, 5], [4, 5], None),
        ("nothing chosen", {"max_tokens": 9}, [], [], None),
        ("the last allowed", {"max_tokens": 3}, [4, 5, 6, 7], [4, 5], "length"),
        ("a stop token", {"max_tokens": 9, "stop_token_ids": (5,)}, [4, 5, 6], [4, 5], "stop"),
        ("a stop token in the last place", {"max_tokens": 3, "stop_token_ids": (5,)}, [4, 5], [4, 5], "stop"),
        ("too early to stop", {"max_tokens": 9, "stop_token_ids": (5,), "min_tokens": 4}, [5, 5, 5], [5, 5, 5], "stop"),
    ],
)
def test_tokens_are_taken_up_to_the_end(
    name: str, params: dict[str, Any], chosen: list[int], taken: list[int], reason: str | None
) -> None:
    seq = sequence([1, 2], [3], **params)
    assert take_tokens(seq, chosen) == (taken, reason), name
    assert list(seq.token_ids) == [1, 2, 3, *taken]


def test_a_grammar_ends_an_answer_that_nothing_can_follow() -> None:
    seq, grammar = sequence([1], max_tokens=9), FakeGrammar(ends_behind=2)
    seq.grammar = cast(GrammarState, grammar)
    assert take_tokens(seq, [4, 5, 6]) == ([4, 5], "stop")
    assert grammar.accepted == [4, 5]


def test_a_grammar_that_fails_ends_the_answer_behind_the_token_that_broke_it() -> None:
    seq = sequence([1], max_tokens=9)
    seq.grammar = cast(GrammarState, FakeGrammar(fails_behind=1))
    assert take_tokens(seq, [4, 5]) == ([4], "error")


def test_with_a_grammar_a_stop_token_ends_before_min_tokens_and_is_not_part_of_its_text() -> None:
    seq, grammar = sequence([1], max_tokens=9, min_tokens=5, stop_token_ids=(7,)), FakeGrammar()
    seq.grammar = cast(GrammarState, grammar)
    assert take_tokens(seq, [4, 7, 5]) == ([4, 7], "stop")
    assert grammar.accepted == [4]
