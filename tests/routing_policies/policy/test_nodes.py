"""YAML text as nodes: what is typed, what is refused, and where a path leads."""

from __future__ import annotations

import pytest
import yaml

from routing_policies.policy.nodes import MAX_DEPTH, compose, scalar_value
from routing_policies.policy.problems import Path, PathProblem
from tests.routing_policies.documents import TWO_DEPLOYMENTS, policy, problems_of


def test_words_that_older_yaml_reads_as_booleans_stay_words() -> None:
    loaded = policy("routes: [{id: off, select: {candidates: [large]}, cache: {mode: off}}]\ntenants: [{id: no}]\n")
    assert loaded.routes[0].id == "off"
    assert loaded.routes[0].cache.mode == "off"
    assert loaded.tenants[0].id == "no"


def test_an_alias_inside_itself_is_refused_without_running_away() -> None:
    assert problems_of("&a {schema_version: 1, deployments: [*a]}\n")


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_document_is_reported_what_it_needs(text: str) -> None:
    assert len(problems_of(text)) == 1


def test_a_document_nested_too_deep_is_refused() -> None:
    assert f"nested deeper than {MAX_DEPTH}" in problems_of("[" * 5000)[0]


def test_control_characters_are_refused() -> None:
    assert "#x0007 at offset" in problems_of(TWO_DEPLOYMENTS + "routes: \a")[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-0", 0),
        ("+1_000", "+1_000"),
        ("0x1F", "0x1F"),
        ("1:30", "1:30"),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        (".inf", ".inf"),
        ("1" * 19, "1" * 19),
        ("True", True),
        ("yes", "yes"),
        ("~", None),
        ("''", ""),
        ("'7'", "7"),
        ("2024-01-01", "2024-01-01"),
    ],
)
def test_a_scalar_is_what_the_core_schema_states(text: str, value: object) -> None:
    node = compose(text, "p").root
    assert isinstance(node, yaml.ScalarNode)
    found = scalar_value(node)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [((), 1, 1), (("a",), 2, 3), (("a", 1), 3, 5), (("a", 1, "b"), 3, 9), (("a", 9), 2, 3), (("x", "y"), 1, 1)],
)
def test_a_problem_stands_at_the_deepest_node_that_its_path_reaches(path: Path, line: int, column: int) -> None:
    document = compose("a:\n  - 1\n  - {b: 2}\n", "p")
    problem = document.locate(PathProblem(path=path, message="m"))
    assert (problem.line, problem.column, problem.message) == (line, column, "m")
