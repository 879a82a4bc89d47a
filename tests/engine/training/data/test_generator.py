import itertools
import json
import random
from collections.abc import Iterator

import pytest

from engine.training.data import forms
from engine.training.data.example import DIFFICULTIES, Example, Frames, is_held_out
from engine.training.data.facts import COUNTRIES, num_facts
from engine.training.data.generator import MIXES, draw_example, stream, test_set
from engine.training.data.grade import is_right
from engine.training.data.tasks import (
    EASY_ONLY,
    MAKERS,
    arithmetic,
    extraction,
    followup,
    passage,
    smalltalk,
    strings,
    units,
    unknown,
)
from engine.training.data.tasks.passage import UNKNOWN
from engine.training.data.tasks.support import COMPARE, PAIRS, TWO
from engine.training.data.wordings import AND_ENTITY, AND_RELATION, QUESTION

test_set.__test__ = False  # type: ignore[attr-defined]  # a function of ours, not a test


def all_frames() -> Iterator[Frames]:
    yield from (*QUESTION.values(), *AND_ENTITY.values(), *AND_RELATION.values())
    yield from (*arithmetic.FRAMES.values(), *extraction.TEXTS.values())
    yield from (extraction.INSTRUCTION, extraction.LIST_INSTRUCTION)
    yield from (*(pair[2] for pair in PAIRS), *TWO.values())
    yield from (row[2] for row in COMPARE)
    yield from (theme.call for theme in passage.THEMES)
    yield from (frames for _, frames in smalltalk.TOPICS)
    yield from (strings.REPEAT, strings.PICK, strings.JOIN, strings.COUNT, strings.REVERSE, strings.SORT, strings.TALLY)
    yield from (strings.COUNT_TO, strings.COUNT_DOWN, units.FRAMES, forms.POLITE, forms.THANKS)
    yield from (passage.LAYOUT, passage.TABLE_LAYOUT, unknown.OFF_TOPIC, followup.CHANGE, followup.CHEAPEST)


def plain(wording: str) -> str:
    return forms.unmarked(wording).casefold()


def test_the_same_seed_gives_the_same_stream() -> None:
    mix = MIXES["large"]
    assert list(itertools.islice(stream(3, "train", mix), 200)) == list(itertools.islice(stream(3, "train", mix), 200))
    assert next(stream(3, "train", mix)) != next(stream(4, "train", mix))


def test_the_same_seed_gives_the_same_test_set() -> None:
    assert test_set(5, 3) == test_set(5, 3)


def test_no_wording_is_in_both_splits() -> None:
    for frames in all_frames():
        assert frames.train
        assert frames.test
        assert not set(map(plain, frames.train)) & set(map(plain, frames.test))


def test_no_test_prompt_comes_up_in_training() -> None:
    trained = set()
    for example in itertools.islice(stream(7, "train", MIXES["large"]), 15_000):
        trained |= {message["content"].casefold() for message in example.messages if message["role"] == "user"}
    seen = [example.prompt for example in test_set(1, 20) if example.prompt.casefold() in trained]
    # A follow-up reports it little that its words alone may come up; its conversation does not.
    assert [prompt for prompt in seen if len(prompt) > 40] == []


def test_held_out_operands_are_never_trained_on() -> None:
    rng = random.Random(0)
    for difficulty in DIFFICULTIES:
        for _ in range(2000):
            _, sign, a, b = arithmetic.operands(rng, "train", difficulty)
            is_shared = arithmetic.is_shared(sign, a, b)
            assert is_shared or not is_held_out(*arithmetic.held_out_key(sign, a, b))


@pytest.mark.parametrize(("sign", "a", "b"), [("+", 7, 11), ("*", 6, 17), ("difference", 3, 28)])
def test_both_orders_of_two_numbers_belong_to_the_same_split(sign: str, a: int, b: int) -> None:
    assert arithmetic.held_out_key(sign, a, b) == arithmetic.held_out_key(sign, b, a)


@pytest.mark.parametrize("task", MAKERS)
def test_every_task_makes_examples_of_both_splits_and_all_difficulties(task: str) -> None:
    rng = random.Random(1)
    for difficulty in DIFFICULTIES[:1] if task in EASY_ONLY else DIFFICULTIES:
        for _ in range(50):
            trained, tested = MAKERS[task](rng, "train", difficulty), MAKERS[task](rng, "test", difficulty)
            for example in (trained, tested):
                assert (example.task, example.difficulty) == (task, difficulty)
                assert example.messages[-1]["role"] == "user"
                assert is_right(example.answer, example.answer)


def test_the_shop_knows_a_few_hundred_facts_in_dozens_of_wordings() -> None:
    assert 300 <= num_facts() <= 500
    rng = random.Random(2)
    question = [MAKERS["support"](rng, "train", "easy") for _ in range(20_000)]
    about = [e.prompt for e in question if "costs" in e.answer and "Finland" in e.answer]
    assert len(set(about)) > 50


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


def test_an_unknown_country_is_none_of_ours() -> None:
    assert not set(unknown.NOT_SERVED) & set(COUNTRIES)


def test_extraction_answers_are_json_whose_values_are_in_the_text() -> None:
    rng = random.Random(5)
    for _ in range(100):
        example = extraction.make(rng, "test", "hard")
        value = json.loads(example.answer)
        for record in value if isinstance(value, list) else [value]:
            assert all(str(field) in example.prompt for field in record.values())


def test_follow_ups_need_the_turn_before() -> None:
    rng = random.Random(6)
    example: Example = followup.make(rng, "test", "easy")
    assert [message["role"] for message in example.messages] == ["user", "assistant", "user"]


def test_joined_conversations_keep_the_last_question_last() -> None:
    rng = random.Random(8)
    for _ in range(300):
        example = draw_example(rng, "train", MIXES["small"])
        roles = [message["role"] for message in example.messages if message["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
