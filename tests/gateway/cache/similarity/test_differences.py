"""Differences of two texts as numbers: symmetric, and larger for rarer words."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cache.grammar.word_lists import words_of
from gateway.cache.similarity.differences import Differences, compare_wordings, differences
from gateway.cache.similarity.standalone import MAX_CHARS
from gateway.cache.similarity.wording import Wording

MAX_S = 0.01
"""Of the event loop, for the comparison of two texts."""


def test_equal_texts_differ_in_nothing() -> None:
    found = differences("How do I prune a quince tree?", "how do I prune a quince tree")
    assert (found.veto, found.overlap, found.letters, found.prompt_only, found.cached_only) == (
        None,
        1.0,
        1.0,
        0.0,
        0.0,
    )


def test_what_is_rare_weighs_more_than_what_every_question_states() -> None:
    common = differences("What is a good way to learn baking?", "What is baking?")
    rare = differences("What is sourdough baking?", "What is baking?")
    assert rare.num_prompt_rare == 1
    assert common.num_prompt_rare == 0


_WORDS = st.sampled_from(
    sorted(words_of("how do not i move from to 5 ten kg miles Porto Braga e404 open close after the and tea don't"))
)
_TEXTS = st.one_of(st.text(max_size=120), st.lists(_WORDS, max_size=14).map(" ".join))


@given(_TEXTS, _TEXTS)
@settings(max_examples=400, deadline=None)
def test_differences_are_the_same_from_both_sides(requested: str, stored: str) -> None:
    there, back = differences(requested, stored), differences(stored, requested)
    assert (there.veto is None) == (back.veto is None)
    mirrored = msgspec.structs.replace(
        back,
        prompt_only=back.cached_only,
        cached_only=back.prompt_only,
        num_prompt_rare=back.num_cached_rare,
        num_cached_rare=back.num_prompt_rare,
        span_prompt=back.span_cached,
        span_cached=back.span_prompt,
        veto=there.veto,
    )
    assert _is_close(there, mirrored)


def _is_close(one: Differences, other: Differences) -> bool:
    return [round(float(value), 9) for value in msgspec.structs.astuple(one)[:-1]] == [
        round(float(value), 9) for value in msgspec.structs.astuple(other)[:-1]
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("above ", "under "),
        ("even ", "also "),
        ("from ", "between "),
        ("on ", "off "),
        ("able ", "unable "),
        ("five ", "six "),
        ("aaing ", "bbing "),
        ("l'a ", "d'b "),
        ("x then ", "then y "),
        ("inside until above during off ", "behind since under after away "),
    ],
)
@pytest.mark.parametrize("begins", [("", ""), ("How do I reset a router the ", "How do I reset a router a ")])
def test_words_repeated_up_to_the_longest_text_take_no_time(one: str, other: str, begins: tuple[str, str]) -> None:
    ours, theirs = (
        Wording.of((begin + unit * MAX_CHARS)[:MAX_CHARS].rpartition(" ")[0])
        for begin, unit in zip(begins, (one, other), strict=True)
    )
    took = []
    for _ in range(5):
        begun = time.thread_time()
        compare_wordings(ours, theirs)
        took.append(time.thread_time() - begun)
    assert min(took) < MAX_S
