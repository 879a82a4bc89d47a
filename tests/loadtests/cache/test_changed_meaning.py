"""Pairs of changed meaning: made from a seed, with words outside of the gateway's lists as well."""

from __future__ import annotations

from itertools import islice

import pytest

from gateway.cache.grammar.lexicon import EXCEPTIONS, NEGATIONS, NUMBERS, OPPOSITES, UNITS
from gateway.cache.similarity.differences import differences
from loadtests.cache.changed_meaning import KINDS, Kind, Pair, pairs
from loadtests.cache.made_questions import made_questions

_OPEN: tuple[Kind, ...] = ("negation", "number", "unit", "direction", "name", "verb")
"""Kinds whose words no list can hold all."""


def some(kind: Kind, *, is_held_out: bool, seed: int = 7, count: int = 200) -> list[Pair]:
    return list(islice(pairs(kind, is_held_out=is_held_out, seed=seed), count))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_held_out", [False, True])
def test_a_seed_decides_the_pairs(kind: Kind, is_held_out: bool) -> None:
    found = some(kind, is_held_out=is_held_out)
    assert found == some(kind, is_held_out=is_held_out)
    assert found != some(kind, is_held_out=is_held_out, seed=8)
    assert len(set(found)) > (100 if kind in _OPEN else 30)
    assert all(pair.cached != pair.prompt and pair.kind == kind for pair in found)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_rules_were_tuned_on_is_always_noticed(kind: Kind) -> None:
    assert [pair for pair in some(kind, is_held_out=False) if differences(pair.prompt, pair.cached).veto is None] == []


@pytest.mark.parametrize("kind", ["number", "unit", "direction", "name", "verb", "tense", "order", "count"])
def test_words_in_no_list_are_noticed_all_the_same(kind: Kind) -> None:
    assert [pair for pair in some(kind, is_held_out=True) if differences(pair.prompt, pair.cached).veto is None] == []


def test_the_other_words_are_in_no_list() -> None:
    for kind in _OPEN:
        for pair in some(kind, is_held_out=True):
            cached, prompt = set(pair.cached.lower().strip("?").split()), set(pair.prompt.lower().strip("?").split())
            changed = cached ^ prompt
            lists = {
                "negation": NEGATIONS.union(EXCEPTIONS),
                "number": set(NUMBERS) - {"hundred"},
                "unit": set(UNITS),
            }.get(kind, set())
            assert changed.isdisjoint(lists), pair
            assert not any((one, other) in OPPOSITES for one in cached - prompt for other in prompt - cached), pair


def test_made_questions_repeat_in_other_wordings_beside_close_others() -> None:
    questions = made_questions(seed=1)
    assert len(set(questions.texts)) == len(questions)
    assert len(set(questions.question_groups.tolist())) < len(questions) * 2 / 3
    assert made_questions(seed=1).texts == questions.texts != made_questions(seed=2).texts
