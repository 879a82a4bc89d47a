"""Names and words of the generator."""

from __future__ import annotations

import random

from engine.training.data.words import FIRST_NAMES, WORDS, first_name, made_up_name, people, split_words


def test_made_up_names_of_the_splits_have_nothing_in_common() -> None:
    rng = random.Random(1)
    trained, tested = ({made_up_name(rng, split) for _ in range(2000)} for split in ("train", "test"))
    assert not trained & tested
    assert len(tested) > 50
    assert all(name.istitle() for name in trained | tested)


def test_most_people_have_common_names_and_no_two_the_same() -> None:
    rng = random.Random(2)
    common = sum(first_name(rng, "train") in FIRST_NAMES for _ in range(1000))
    assert 700 < common < 880
    assert len(set(people(rng, "test", 30))) == 30


def test_a_list_of_words_has_none_twice() -> None:
    assert len(set(WORDS)) == len(WORDS)
    assert split_words(" a  b\nc ") == ("a", "b", "c")
