"""Every form of a task comes up in training, in every way of writing it, and no range of numbers has a gap."""

import itertools
import random
import re
from collections.abc import Iterable, Iterator, Mapping

import pytest

from engine.training.data.example import DIFFICULTIES, Difficulty, Example, Frames, Split, is_held_out
from engine.training.data.forms import MANNERS, NUMBER_WORDS, in_a_manner, pick_form
from engine.training.data.generator import MIXES, stream
from engine.training.data.tasks import TRAINING_ONLY, arithmetic, strings, units
from engine.training.evaluation.exhaustive import exhaustive_set

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


def drawn(difficulty: Difficulty, count: int = 20_000) -> Iterator[tuple[str, int, int]]:
    rng = random.Random(7)
    return (arithmetic.operands(rng, "train", difficulty)[1:] for _ in range(count))


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


@pytest.mark.parametrize("sign", ["+", "*"])
def test_one_digit_comes_first_and_second(sign: str) -> None:
    pairs = {(a, b) for drawn_sign, a, b in drawn("easy") if drawn_sign == sign}
    assert {(a, b) for a in range(10) for b in range(10)} <= pairs
    assert any(a < 10 <= b for a, b in pairs)
    assert any(b < 10 <= a for a, b in pairs)


@pytest.mark.parametrize("first", [0, 1, 5, 7, 9])
def test_every_digit_is_added_to_every_number_of_two_digits(first: int) -> None:
    pairs = {(a, b) for sign, a, b in drawn("medium", 60_000) if sign == "+" and a == first}
    held_out = {b for b in range(10, 100) if is_held_out(*arithmetic.held_out_key("+", first, b))}
    assert {b for _, b in pairs if b >= 10} == set(range(10, 100)) - held_out


def test_numbers_are_equal_nothing_one_and_below_zero() -> None:
    found = {
        (sign, "=" if a == b else "<" if a < b else ">", 0 in (a, b), arithmetic.evaluate(sign, a, b) < 0)
        for difficulty in DIFFICULTIES
        for sign, a, b in drawn(difficulty, 5000)
    }
    for sign in ("+", "-", "*"):
        assert {order for found_sign, order, *_ in found if found_sign == sign} == {"=", "<", ">"}
        assert any(has_zero for found_sign, _, has_zero, _ in found if found_sign == sign)
    assert {sign for sign, *_, is_below in found if is_below} == {"-"}


@pytest.mark.parametrize(
    ("sign", "a", "b", "result"),
    [
        ("+", 7, 11, 18),
        ("-", 5, 8, -3),
        ("-", 8, 8, 0),
        ("difference", 5, 8, 3),
        ("difference", 8, 5, 3),
        ("*", 7, 12, 84),
    ],
)
def test_a_difference_has_no_sign_and_a_subtraction_has(sign: str, a: int, b: int, result: int) -> None:
    assert arithmetic.evaluate(sign, a, b) == result


def test_numbers_are_written_with_signs_of_all_kinds_and_in_words() -> None:
    prompts = [example.prompt for difficulty in DIFFICULTIES for example in made("arithmetic", difficulty)]
    for sign in (r" \+ ", r"\+", " - ", "-", " − ", r" \* ", r"\*", " x ", "x", " × ", "×"):
        assert any(re.search(rf"\d{sign}\d", prompt) for prompt in prompts), sign
    spelled = {word for prompt in prompts for word in re.findall("[a-z]+", prompt.lower())}
    assert set(NUMBER_WORDS) <= spelled


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


def test_counting_to_a_number_goes_to_every_number_up_to_fifty() -> None:
    rng = random.Random(5)
    examples = [TRAINING_ONLY["counting"](rng, "train", "easy") for _ in range(5000)]
    to = {int(example.answer.split()[-1]) for example in examples if example.form in ("count to", "count to far")}
    assert to == set(range(1, 51))
    for example in examples:
        numbers = [int(number) for number in example.answer.split()]
        step = -1 if example.form == "count down" else 1
        assert numbers == list(range(numbers[0], numbers[-1] + step, step))
        assert str(numbers[-1]) in re.findall(r"\d+", example.prompt) or example.prompt.endswith("one")


@pytest.mark.parametrize("form", ["count", "count far", "count down"])
def test_counting_begins_at_nothing_crosses_tens_and_takes_few_and_many_steps(form: str) -> None:
    rng = random.Random(6)
    counted = [strings.COUNTING[form](rng, "train")[1].split() for _ in range(2000)]
    assert any("0" in numbers for numbers in counted)
    lengths = {len(numbers) for numbers in counted}
    assert lengths == set(range(min(lengths), max(lengths) + 1))
    assert min(lengths) == (20 if form == "count far" else 2)


def test_lists_have_one_item_or_many_with_and_without_commas() -> None:
    easy = [example for example in made("strings", "easy") if example.form == "first or last"]
    items = [len(example.prompt.split(": ", 1)[-1].split()) for example in easy if ": " in example.prompt]
    assert set(items) >= set(range(1, 9))
    assert {", " in example.prompt for example in easy} == {True, False}
    medium = {example.form: set[int]() for example in made("strings", "medium")}
    for example in made("strings", "medium"):
        medium[example.form].add(len(example.answer.split()))
    assert medium["reverse"] == {2, 3, 4, 5}
    assert medium["reverse letters"] == {2, 3, 4, 5}
    assert medium["sort few"] == {2, 3}


def test_a_tally_may_be_nothing() -> None:
    found = {example.answer for example in made("strings", "medium") if example.form == "tally"}
    assert found == {"0", "1", "2", "3", "4", "5"}


@pytest.mark.parametrize("row", [*units.TENS, *units.TABLES], ids=lambda row: row[0])
def test_units_are_converted_in_both_directions(row: units.Row) -> None:
    larger, smaller, factor = row
    rng = random.Random(8)
    seen = set()
    for _ in range(4000):
        table = {**units.FORMS["easy"], **units.FORMS["medium"]}
        conversion = pick_form(rng, table)[1](rng, "train")
        seen.add((conversion.unit, conversion.answer.split(" ", 1)[1]))
    assert (smaller, units.answered(str(factor), smaller).split(" ", 1)[1]) in seen
    assert (larger, units.answered("2", larger).split(" ", 1)[1]) in seen


@pytest.mark.parametrize(
    ("number", "unit", "answer"),
    [("1", "hours", "1 hour"), ("2", "hours", "2 hours"), ("1", "feet", "1 foot"), ("1", "euros", "1 euro"),
     ("1", "kilometres", "1 km"), ("1.5", "kilometres", "1.5 km"), ("1", "dozen", "1 dozen"), ("0", "days", "0 days")],
)  # fmt: skip
def test_a_unit_has_the_form_of_its_number(number: str, unit: str, answer: str) -> None:
    assert units.answered(number, unit) == answer


def test_units_are_written_in_full_short_american_and_as_one() -> None:
    prompts = " | ".join(example.prompt.lower() for example in made("units", "easy", count=4000))
    for text in ("1 kilometre ", "a kilometre", "one kilometre", " km ", "kilometers", "an hour", "one week", " 1 day"):
        assert text in prompts, text
    assert not re.search(r"\b1 (hours|minutes|weeks|days|metres|feet|euros)\b", prompts)


@pytest.mark.parametrize("form", ["mixed", "to mixed"])
def test_mixed_units_have_the_forms_of_their_numbers(form: str) -> None:
    rng = random.Random(9)
    conversions = [units.FORMS["hard"][form](rng, "train") for _ in range(2000)]
    texts = [conversion.quantity if form == "mixed" else conversion.answer for conversion in conversions]
    assert any(text.startswith("1 hour and ") for text in texts)
    assert not [text for text in texts if re.search(r"\b1 (hours|minutes|weeks|days|feet|inches)\b", text)]


def test_the_exhaustive_set_requests_everything_once_in_wordings_of_the_test() -> None:
    examples = exhaustive_set(1)
    sums = [example for example in examples if example.task == "digit + two digits"]
    assert len(sums) == 10 * 31
    assert [int(example.answer) for example in sums] == [a + b for a in range(10) for b in range(10, 41)]
    counted = [example.answer.split()[-1] for example in examples if example.task == "count to a number"]
    assert counted == [str(number) for number in range(1, 51)]
    trained = {example.prompt for level in DIFFICULTIES for example in made("arithmetic", level, count=5000)}
    assert not trained & {example.prompt for example in examples}


def test_the_exhaustive_set_of_another_seed_has_the_same_answers_in_other_wordings() -> None:
    first, second = exhaustive_set(1), exhaustive_set(2)
    assert [example.answer for example in first] == [example.answer for example in second]
    assert [example.prompt for example in first] != [example.prompt for example in second]
