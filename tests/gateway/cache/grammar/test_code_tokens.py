"""Signs and letter case count in code, and in nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cache.grammar.code_tokens import code_tokens


def are_different(one: str, other: str, *, in_any_order: bool = False) -> bool:
    return code_tokens(one).differ_from(code_tokens(other), in_any_order=in_any_order)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("what does x // y do in python", "what does x / y do in python"),
        ("when do I write == in a test", "when do I write = in a test"),
        ("what does ls -a list", "what does ls -A list"),
        ("what does s[1:] give", "what does s[:1] give"),
        (r"what matches \d+ here", r"what matches \D+ here"),
        ("who reads /etc/passwd", "who reads ./etc/passwd"),
        ("what is $x in perl", "what is @x in perl"),
        ("rename fooBar please", "rename foobar please"),
        ("rename FooBar in python", "rename Foobar in python"),
        ("what does `Set` hold", "what does `set` hold"),
        ("is [1, 2] a tuple", "is (1, 2) a tuple"),
        ("does pip take ==2.0", "does pip take >=2.0"),
        ("what is a - b in python", "what is b - a in python"),
        ("what does vim's x do in vim", "what does vim's X do in vim"),
    ],
)
def test_a_sign_or_a_capital_in_code_is_a_difference(one: str, other: str) -> None:
    assert are_different(one, other)
    assert are_different(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What does // do in Python?", "what does `//` do in python"),
        ('What does "==" mean?', "What does == mean?"),
        ("Is tea/coffee good?", "Is tea / coffee good?"),
        ("Is YouTube free?", "Is Youtube free?"),
        ("How do I learn C++?", "how do I learn C++"),
        ("Is $5 enough?", "Is 5 dollars enough?"),
        ("Is a 10% tip fine (in Porto)?", "Is a 10 % tip fine, in Porto?"),
        ("Why? Really?!", "Why really"),
        ("Please **do** prune it", "Please do prune it"),
        ("How do I sort a list in C?", "How do I sort a list in c"),
    ],
)
def test_marks_of_prose_are_no_difference(one: str, other: str) -> None:
    assert not are_different(one, other)


def test_the_order_of_signs_counts_unless_both_are_compared() -> None:
    one, other = "what is the difference between // and / here", "what is the difference between / and // here"
    assert are_different(one, other)
    assert not are_different(one, other, in_any_order=True)


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_has_code_tokens_and_differs_in_none_from_itself(text: str) -> None:
    found = code_tokens(text)
    assert not found.differ_from(found, in_any_order=False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What does :: mean in C++?", "What does : mean in C++?"),
        ("What does map! do in Ruby?", "What does map do in Ruby?"),
        ("What does nil? do in Ruby?", "What does nil do in Ruby?"),
        ("What does n! mean?", "What does n mean?"),
        ("What is 5 mW in watts?", "What is 5 MW in watts?"),
        ("What does rsync -a src/ dst do?", "What does rsync -a src dst do?"),
        ("What does a AND b do in SQL?", "What does a OR b do in SQL?"),
        ("How much is 5 Mb in bytes?", "How much is 5 MB in bytes?"),
        ("What does UNION do in SQL?", "What does UNION ALL do in SQL?"),
        ("How does `for x in xs` differ from a loop?", "How does `for x of xs` differ from a loop?"),
    ],
)
def test_marks_and_capitals_that_change_code_count(one: str, other: str) -> None:
    assert code_tokens(one).differ_from(code_tokens(other), in_any_order=False)
    assert code_tokens(other).differ_from(code_tokens(one), in_any_order=False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I sort a list in Python?", "how do i sort a list in python?"),
        ("What does git reset --hard do?", "What does `git reset --hard` do?"),
        ("Help! How do I use grep?", "Help: how do I use grep?"),
    ],
)
def test_the_person_and_backticks_do_not(one: str, other: str) -> None:
    assert not code_tokens(one).differ_from(code_tokens(other), in_any_order=False)


def test_a_language_whose_name_is_a_letter_makes_a_text_about_code() -> None:
    assert code_tokens("how do I sort numbers in C?").is_about_code
    assert code_tokens("how do I sort numbers in Go").is_about_code
    assert not code_tokens("how do I play a waltz in C minor").is_about_code
    assert not code_tokens("how do I go in a barge").is_about_code
