"""Every form of a task comes up in training, in every way of writing it, and no range of numbers has a gap."""

import itertools
import random
import re
from collections.abc import Iterable, Iterator, Mapping

import pytest

from engine.training.data.example import DIFFICULTIES, Difficulty, Example, Frames, Split
from engine.training.data.forms import MANNERS, in_a_manner
from engine.training.data.generator import MIXES, stream
from engine.training.data.tasks import arithmetic, strings, units

TABLES: Mapping[str, Mapping[Difficulty, Iterable[str]]] = {
    "arithmetic": arithmetic.OPERANDS,
    "strings": strings.FORMS,
    "units": units.FORMS,
}
MAKERS = {"arithmetic": arithmetic.make, "strings": strings.make, "units": units.make}
FRAMES = (*arithmetic.FRAMES.values(), strings.COUNT, strings.COUNT_TO, strings.COUNT_DOWN, units.FRAMES)


def made(task: str, difficulty: Difficulty, *, split: Split = "train", count: int = 2000) -> Iterator[Example]:
    rng = random.Random(f"{task}:{difficulty}")
    return (MAKERS[task](rng, split, difficulty) for _ in range(count))


@pytest.mark.parametrize("task", TABLES)
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_form_of_the_table_is_made_about_as_often(task: str, split: Split) -> None:
    for difficulty in DIFFICULTIES:
        names = [example.form for example in made(task, difficulty, split=split)]
        rows = list(TABLES[task][difficulty])
        assert set(names) == set(rows)
        assert min(names.count(row) for row in rows) > 0.6 * len(names) / len(rows)


@pytest.mark.parametrize("mix", ["forms", "small_forms"])
def test_the_training_meets_every_form(mix: str) -> None:
    seen = {(example.task, example.form) for example in itertools.islice(stream(1, "train", MIXES[mix]), 15_000)}
    rows = {(task, row) for task, table in TABLES.items() for rows in table.values() for row in rows}
    if mix == "small_forms":  # hardly any hard ones
        rows = {(task, row) for task, table in TABLES.items() for level in ("easy", "medium") for row in table[level]}
    assert rows <= seen
    assert {("counting", form) for form in strings.COUNTING} <= seen


@pytest.mark.parametrize("mix", ["warmup", "shared", "large", "polish", "finish", "forms"])
def test_the_forms_of_every_task_belong_to_all_mixes(mix: str) -> None:
    tasks = {task for task, _ in MIXES[mix].cells}
    assert tasks >= set(TABLES)


def test_the_small_model_is_not_requested_the_cheapest_of_several() -> None:
    examples = itertools.islice(stream(2, "train", MIXES["small_forms"]), 8000)
    assert not [e for e in examples if e.task in ("support", "followup") and e.difficulty == "hard"]


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("frames", FRAMES, ids=lambda frames: frames.train[0])
def test_a_manner_keeps_the_slots_of_every_wording(manner: str, frames: Frames) -> None:
    rng = random.Random(3)
    for split, wordings in (("train", frames.train), ("test", frames.test)):
        for wording in wordings:
            written = MANNERS[manner](rng, split, wording)  # type: ignore[arg-type]
            assert sorted(re.findall(r"{\w}", written)) == sorted(re.findall(r"{\w}", wording))


def test_wordings_come_with_and_without_mark_in_both_cases_and_politely() -> None:
    rng = random.Random(4)
    written = {in_a_manner(rng, "train", "What is {a} + {b}?") for _ in range(500)}
    assert {"What is {a} + {b}?", "What is {a} + {b}", "what is {a} + {b}?", "what is {a} + {b}"} <= written
    assert any(text.startswith("Please tell me: ") for text in written)
    assert any(text.endswith(" Thanks.") for text in written)
