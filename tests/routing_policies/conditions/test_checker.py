"""Conditions that the grammar refuses, and the inputs of those that it accepts."""

from __future__ import annotations

import pytest

from routing_policies.conditions.checker import MAX_DEPTH, Checker
from routing_policies.conditions.tokens import ConditionError


@pytest.mark.parametrize(
    ("source", "reported"),
    [
        ("", "did not expect the end"),
        ("request.turns", "a condition is true or false, this is a whole number"),
        ('request.turns > "2"', "cannot be compared with >"),
        ("request.turns > 2.5", "cannot be compared"),
        ("request.turn > 2", 'did you mean "turns"'),
        ("tennant == 'x'", 'did you mean "tenant"'),
        ('headers["X-Plan"] == "a"', "lower case"),
        ("headers[tenant] == 'a'", "expected a string"),
        ("[1, 2].exists(x, x > 1)", "has no exists"),
        ("[[1], [2]].all(x, x.all(y, y > 0))", "constants"),
        ('request.text.matches("(a{1000}){1000}")', "no counted repetition"),
        ("request.text.matches(tenant)", "one text in quotes"),
        ("tenant in [1, 2]", "cannot be in"),
        ("true &&", "at character 8"),
        ("true; false", "';' is not valid here"),
        ("(" * 100 + "true" + ")" * 100, "nested deeper"),
        ("!" * 200 + "true", "nested deeper"),
        ("true" + " && true" * 200, "longer than|more than"),
        ("x" * 5000, "longer than"),
    ],
)
def test_what_is_no_bounded_condition_is_refused_with_its_place(source: str, reported: str) -> None:
    with pytest.raises(ConditionError, match=reported.replace("[", r"\[").replace("(", r"\(")):
        Checker(source).check()


def test_a_checked_condition_names_its_inputs() -> None:
    checker = Checker('tenant == "a" && headers["x-plan"] == "b" || request.turns > 1 && request.text.matches("x+")')
    checker.check()
    assert (checker.fields, checker.headers, checker.needs_tenant) == ({"turns", "text"}, {"x-plan"}, True)
    assert checker.patterns == ['"x+"']


@pytest.mark.parametrize(
    ("source", "at"),
    [("true && 1", 9), ("request.turns > 1 ? 2 : true", 1), ("!1", 1), ("1 + 'a' > 2", 3), ("(true", 6)],
)
def test_a_refusal_names_the_character(source: str, at: int) -> None:
    with pytest.raises(ConditionError) as refusal:
        Checker(source).check()
    assert refusal.value.at == at


def test_nesting_is_allowed_to_its_limit() -> None:
    Checker("(" * (MAX_DEPTH - 1) + "true" + ")" * (MAX_DEPTH - 1)).check()
    with pytest.raises(ConditionError, match=f"nested deeper than {MAX_DEPTH}"):
        Checker("(" * MAX_DEPTH + "true" + ")" * MAX_DEPTH).check()
