"""Answers compared: by words, by numbers, by the encoder, by an auditor."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest

from gateway.cache.audit.comparison import AnswerPair, auditor_document, auditor_verdict, is_equivalent, text_of
from gateway.cache.audit.route_stats import RouteStats
from tests.gateway.cache.audit.test_error_budget import sample
from tests.gateway.cache.similar_stack import completion
from tests.gateway.cache.word_encoder import NearMatchModel


@pytest.mark.parametrize(
    ("stored", "fresh", "expected"),
    [
        ("It is 10 km.", "it is  10 km", True),
        ("It is 10 km.", "It is 100 km.", False),
        ("It is 3.5 km.", "It is 35 km.", False),
        ("Press the button.", "Use the button.", None),
        ("Take 10 mg of it.", "Of that, take 10 mg.", True),
        ("It may take a minute.", "It cannot take a minute.", None),
        ("It opens at 9 am.", "It opens at 9:00 am.", True),
        ("It opens at 9 am.", "It opens at 9:30 am.", False),
        ("It is 1/2.", "It is 0.5.", True),
        ("Es kostet 1,50 Euro.", "Es kostet 1.50 Euro.", True),
        ("It costs $3M.", "It costs 3 million dollars.", True),
        ("It is -5 degrees.", "It is 5 degrees.", False),
        ("Use Python 3.10.", "Use Python 3.1.", False),
    ],
)
def test_answers_are_compared_by_words_then_by_numbers(stored: str, fresh: str, expected: bool | None) -> None:
    assert is_equivalent(stored, fresh) is expected


def test_what_the_encoder_cannot_report_is_unknown() -> None:
    assert [AnswerPair.of("", "").verdict(value) for value in (None, 0.95, 0.5)] == ["unknown", "right", "unknown"]
    assert AnswerPair.of("Open the settings page.", "Mix flour with eggs.").verdict(0.1) == "wrong"
    assert AnswerPair.of("It is.", "Yes, come in.").verdict(0.1) == "unknown", "too short for a vector"
    assert AnswerPair.of("It takes 10 minutes in all.", "In all it takes 20 minutes.").verdict(0.95) == "wrong"
    assert AnswerPair.of("You can delete it later.", "You cannot delete it later.").verdict(0.95) == "unknown"
    assert AnswerPair.of("It takes 90 minutes.", "It takes 1.5 hours.").verdict(0.95) == "unknown", (
        "units may make them equal"
    )
    assert AnswerPair.of("On 03/05/1998.", "On March 5th.").verdict(0.95) == "unknown", "dates have many forms"
    assert AnswerPair.of("It weighs 5 kg.", "It weighs 5 g.").verdict(0.95) == "unknown", "one word in another's place"
    assert AnswerPair.of("Ada hired Bo.", "Bo hired Ada.").verdict(0.95) == "unknown"


def test_only_plain_texts_are_compared() -> None:
    assert text_of(completion("hello")) == "hello"
    assert text_of(b'{"choices": []}') is None
    assert text_of(b"nonsense") is None
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "x", "tool_calls": [call]}
    assert text_of(json.dumps({"choices": [{"message": message}]}).encode()) is None


@pytest.mark.parametrize(
    ("reported", "expected"),
    [("Yes.", True), ("no", False), (" NO, they differ", False), ("perhaps", None), ("", None)],
)
def test_a_auditor_states_yes_or_no(reported: str, expected: bool | None) -> None:
    assert auditor_verdict(completion(reported)) is expected
    assert auditor_verdict(None) is None
    assert auditor_document("q", "a", "b")["temperature"] == 0


_UNITS = ["minutes", "days", "kilometres", "dollars", "percent"]
_DIGITS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_NAMES = ["Lisbon", "Oslo", "Canberra", "Nairobi", "Quito", "Hanoi"]


def worded(rng: Random, count: int, unit: str, name: str) -> str:
    """One fact in any of many wordings."""
    number = rng.choice([str(count), _DIGITS[count - 2], f"**{count}**"])
    return rng.choice(
        [
            f"It takes {number} {unit} and is done in {name}.",
            f"1. Go to {name}.\n2. It takes {number} {unit}.",
            f"- Place: *{name}*\n- Needed: {number} {unit}",
            f"### Answer\n{name} is where it is done; plan {number} {unit} for it.",
            f"Sure! In {name}, it'll take {number} {unit}.",
            f"{number} {unit}, in {name}.",
            f"Step 1: travel to {name}. Step 2: wait. You need about {number} {unit} in total, by 1 of 3 accounts.",
            f"You would have to be in {name} for it, and to set aside {number} {unit}.",
        ]
    )


def test_right_answers_in_other_words_leave_the_tier_open_and_its_error_at_nothing() -> None:
    rng, stats = Random(1), RouteStats(NearMatchModel())
    verdicts = Counter[str]()
    for number in range(2000):
        stats.note_request(0.0)
        stats.note_hit(0.0, b"%d" % number, b"cached", 0.95)
        if rng.random() < 0.02:
            fact = rng.randint(2, 12), rng.choice(_UNITS), rng.choice(_NAMES)
            one, other = worded(rng, *fact), worded(rng, *fact)
            both = AnswerPair.of(one, other)
            same = both.is_equivalent("How long does it take, and where is it done?")
            similarity = rng.uniform(0.2, 1.0)
            verdict = both.verdict(similarity) if same is None else "right" if same else "wrong"
            verdicts[verdict] += 1
            if verdict != "unknown":
                stats.add(sample(number, wrong=verdict == "wrong", weight=50.0, match_probability=0.95))
                stats.step(0.01)
    assert verdicts["wrong"] == 0, verdicts
    assert verdicts["right"] > 10, verdicts
    assert stats.evidence.served().low == 0.0
    assert stats.level == 0


def test_another_number_in_the_same_words_is_wrong_however_it_is_written() -> None:
    rng = Random(2)
    for _ in range(200):
        count, unit, name = rng.randint(2, 11), rng.choice(_UNITS), rng.choice(_NAMES)
        one, other = f"In {name}, {count} {unit}.", f"- In {name}, {_DIGITS[count - 1]} {unit}"
        assert is_equivalent(one, other) is False, (one, other)
