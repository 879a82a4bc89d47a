"""Wordings of customers' questions."""

from __future__ import annotations

import random
import re

from engine.training.data.facts import relations
from engine.training.data.wordings import AND_ENTITY, AND_RELATION, QUESTION, dress


def test_every_relation_has_a_question_with_one_place_for_its_entity() -> None:
    assert {relation.name for relation in relations()} <= set(QUESTION)
    for frames in (*QUESTION.values(), *AND_ENTITY.values()):
        for wording in (*frames.train, *frames.test):
            assert re.findall(r"{\w*}", wording) == ["{x}"], wording


def test_a_change_of_question_names_no_entity() -> None:
    for frames in AND_RELATION.values():
        assert not any("{" in wording for wording in (*frames.train, *frames.test))


def test_a_dressed_question_still_is_the_question() -> None:
    rng = random.Random(1)
    dressed = {dress(rng, "train", "What is the Price?") for _ in range(300)}
    assert len(dressed) > 20
    assert all("what is the price?" in text.casefold() for text in dressed)
    assert any(text == text.lower() for text in dressed)
