"""YAML nodes as structs: every problem at once, each at its node."""

from __future__ import annotations

from typing import Literal

import msgspec

from routing_policies.loading import load_policy
from routing_policies.policy.nodes import compose
from routing_policies.policy.structs import MAX_NODES, StructReader
from tests.routing_policies.documents import TWO_DEPLOYMENTS, policy, problems_of


def test_every_problem_is_reported_at_once_in_document_order() -> None:
    reported = problems_of(TWO_DEPLOYMENTS.replace("model: penstock-small", "modl: x") + "lanes: 3\nrutes: 1\n")
    assert [line.split(":")[1] for line in reported] == ["3", "3", "5", "6"]


def test_variables_are_filled_into_strings_and_unknown_ones_are_errors() -> None:
    text = 'schema_version: 1\ndeployments: [{id: a, url: "unix:${runtime_dir}/a.sock", model: m}]\n'
    loaded = load_policy(text, source="p", variables={"runtime_dir": "/run/x"})
    assert loaded.deployments[0].url == "unix:/run/x/a.sock"
    reported = problems_of(text.replace("runtime_dir", "runtimedir"))
    assert reported == ['p.yaml:2:28: deployments[0].url: no variable "runtimedir"; there are none']


def test_an_alias_stands_for_what_it_names() -> None:
    loaded = policy(
        "routes:\n"
        "  - {id: a, select: &both {candidates: [small, large]}}\n"
        "  - {id: b, match: {models: [other]}, select: *both}\n"
    )
    assert loaded.routes[0].select == loaded.routes[1].select


def test_aliases_cannot_be_used_to_make_a_document_explode() -> None:
    levels = "\n".join(f"  - &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 7))
    assert len(problems_of(TWO_DEPLOYMENTS + f"routes:\n  - &l0 [x]\n{levels}\n")) <= 10


def test_the_number_of_values_is_bounded_after_aliases_are_expanded() -> None:
    models = "[" + ", ".join(["m"] * 2000) + "]"
    routes = "\n".join(
        ["routes:", f"  - {{id: r0, select: {{candidates: [small]}}, match: {{models: &m {models}}}}}"]
        + [f"  - {{id: r{i}, select: {{candidates: [small]}}, match: {{models: *m}}}}" for i in range(1, 120)]
    )
    reported = problems_of(TWO_DEPLOYMENTS + routes + "\n")
    assert any(f"more than {MAX_NODES} values once aliases are expanded" in line for line in reported)


class Part(msgspec.Struct, frozen=True):
    size: int
    colour: Literal["red", "green"] = "red"


class Whole(msgspec.Struct, frozen=True):
    parts: tuple[Part | str, ...]
    note: str | None = None

    def __post_init__(self) -> None:
        if self.note == "forbidden":
            raise ValueError("the note is forbidden")


def read(text: str) -> tuple[Whole | None, list[str]]:
    reader = StructReader({})
    return reader.read(compose(text, "p").root, Whole), [problem.render("p") for problem in reader.problems]


def test_the_shape_of_a_node_chooses_the_member_of_a_union() -> None:
    assert read("{parts: [{size: 1}, bare], note: ~}") == (Whole((Part(1), "bare")), [])


def test_a_struct_that_refuses_its_values_reports_it_at_its_own_place() -> None:
    assert read("\n{parts: [], note: forbidden}") == (None, ["p:2:1: the note is forbidden"])


def test_nothing_is_made_of_a_part_with_a_problem_and_its_neighbours_are_still_checked() -> None:
    found, reported = read("{parts: [{size: x}, {colour: blue, size: 1}, {}]}")
    assert found is None
    assert len(reported) == 3
    assert "parts[0].size: expected int, got 'x'" in reported[0]
    assert 'parts[1].colour: "blue" is not a choice here' in reported[1]
    assert 'parts[2]: "size" is missing' in reported[2]
