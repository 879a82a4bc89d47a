"""Problems as text: in document order, with their place and the nearest word."""

from __future__ import annotations

from routing_policies.policy.problems import MAX_SHOWN, PolicyError, Problem, did_you_mean, dotted, renamed_or_near
from tests.routing_policies.documents import TWO_DEPLOYMENTS, problems_of


def test_an_error_shows_a_screenful_and_counts_the_rest() -> None:
    tests = "tests: [" + ", ".join(["{name: n, expect: {candidates: [small]}}"] * 300) + "]"
    reported = problems_of(TWO_DEPLOYMENTS + tests)
    assert len(reported) == MAX_SHOWN + 1
    assert reported[-1] == f"p.yaml: and {299 - MAX_SHOWN} more"


def test_problems_stand_in_document_order_whatever_order_they_were_found_in() -> None:
    late = Problem(line=9, column=1, path="b", message="late")
    early = Problem(line=2, column=7, path="", message="early")
    error = PolicyError("p.yaml", iter([late, early]))
    assert error.problems == (early, late)
    assert str(error) == "p.yaml:2:7: early\np.yaml:9:1: b: late"


def test_a_path_is_dotted_with_indexes_in_brackets() -> None:
    assert dotted(("routes", 0, "select", "candidates", 12)) == "routes[0].select.candidates[12]"
    assert dotted(()) == ""


def test_the_nearest_word_is_named_else_the_known_ones_and_of_very_many_only_some() -> None:
    assert did_you_mean("wieght", ["weight", "wait"]) == '; did you mean "weight"?'
    assert did_you_mean("x", ["weight", "wait"]) == "; known: weight, wait"
    assert did_you_mean("x", []) == "; there are none"
    assert did_you_mean("x", [f"name{number}" for number in range(60)]).endswith("name49 and 10 more")


def test_a_renamed_key_is_called_by_its_new_name_only_where_that_exists() -> None:
    assert renamed_or_near("judge", ["auditor", "mode"]) == '; it is called "auditor" now'
    assert renamed_or_near("judge", ["mode"]) == "; known: mode"
