"""Reasons why a change of the policy is refused, in words."""

from __future__ import annotations

from gateway.policies.errors import ApplyRefused, CanaryRunning, InvalidPolicy, NoSuchRevision, RevisionConflict
from routing_policies.policy.problems import Problem
from tests.gateway.policies.test_revision import REVISION


def test_a_conflict_names_both_sides_and_who_was_faster() -> None:
    error = RevisionConflict('"6-aa"', REVISION)
    assert (error.yours, error.theirs) == ('"6-aa"', REVISION)
    assert str(error) == '"6-aa" is not in force any more: anna made revision 7 of it'


def test_an_invalid_document_shows_its_first_problem_and_keeps_all() -> None:
    problems = [Problem(line=number, column=1, path="", message=f"wrong {number}") for number in (3, 9)]
    error = InvalidPolicy(problems)
    assert str(error) == problems[0].render("policy")
    assert error.problems == tuple(problems)
    assert str(InvalidPolicy([])) == "invalid"


def test_every_reason_can_be_caught_as_one() -> None:
    for error in (RevisionConflict("x", REVISION), InvalidPolicy([]), NoSuchRevision("x"), CanaryRunning()):
        assert isinstance(error, ApplyRefused)
