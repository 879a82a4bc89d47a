"""Details that turn the meaning of an answer beside the same words."""

from __future__ import annotations

import time

import pytest

from gateway.cache.audit.answers.details import Details
from gateway.cache.audit.answers.spoken_numbers import tokens_of
from gateway.cache.audit.comparison import AnswerPair, is_equivalent


def details(text: str) -> Details:
    return Details.of(text, tokens_of(text))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Use rm -r.", "Use rm -R."),
        ("Use `a == b`.", "Use `a = b`."),
        ("```python\nx = a[0]\n```", "```python\nx = a[1]\n```"),
        ("```python\nx = a + b\n```", "```python\nx = a - b\n```"),
        ("You must pay.", "You may pay."),
        ("You will be charged.", "You were charged."),
        ("First boil, then fry.", "First fry, then boil."),
        ("Server A is faster than server B.", "Server B is faster than server A."),
        ("Das ist erlaubt.", "Das ist nicht erlaubt."),
        ("Il est interdit de fumer.", "Il n'est pas interdit de fumer."),
        ("Это безопасно.", "Это не безопасно."),
        ("这是安全的。", "这不是安全的。"),
    ],
)
def test_answers_of_the_same_words_are_not_right_where_a_detail_differs(one: str, other: str) -> None:
    assert details(one).conflict_with(details(other))
    assert is_equivalent(one, other) is not True
    assert is_equivalent(other, one) is not True
    assert AnswerPair.of(one, other).verdict(0.95) != "right"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("| Planet | Moons |\n|---|---|\n| Earth | 1 |", "- Earth: 1"),
        ("Use `print('hi')`.", "```python\nprint('hi')\n```"),
        ("1. Open settings.\n2. Click reset.", "Open settings, then click reset."),
        ("You can pay by card.", "You could pay by card."),
        ("**Paris** is the capital.", "The capital is Paris."),
        ("", ""),
    ],
)
def test_formatting_is_no_detail(one: str, other: str) -> None:
    assert not details(one).conflict_with(details(other))
    assert is_equivalent(one, other) is not False


@pytest.mark.parametrize("unit", ["[", "-", "`", "| a ", "1. ", "这", "hundred ", "a=b ", "[a]("])
def test_answers_of_any_form_take_little_time(unit: str) -> None:
    text = (unit * 10_000)[:10_000]
    begun = time.process_time()
    is_equivalent(text, f"{text} Yes.")
    assert time.process_time() - begun < 1.0
