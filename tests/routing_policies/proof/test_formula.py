"""The structure of a condition agrees with the condition itself, for every truth of its atoms."""

from __future__ import annotations

import random

import pytest

from routing_policies.conditions.condition import Condition
from routing_policies.proof.atoms import ReadRequest
from routing_policies.proof.formula import Formula, formula_of, open_atom, truth

VALUES = [
    {"turns": turns, "has_tools": tools, "stream": stream, "text": text}
    for turns in (0, 2, 3)
    for tools in (False, True)
    for stream in (False, True)
    for text in ("", "a", "a || b")
]


def structure(source: str) -> tuple[Formula, list[str]]:
    atoms: dict[str, int] = {}
    return formula_of(source, lambda text: atoms.setdefault(text, len(atoms))), [*atoms]


@pytest.mark.parametrize(
    ("source", "atoms"),
    [
        ("request.has_tools", ["request.has_tools"]),
        ("!request.has_tools && request.turns <= 2", ["request.has_tools", "request.turns <= 2"]),
        ("!(request.has_tools || request.stream)", ["request.has_tools", "request.stream"]),
        ("!request.has_tools == request.stream", ["!request.has_tools == request.stream"]),
        ("(request.turns + 1) * 2 < 7", ["(request.turns + 1) * 2 < 7"]),
        ('request.text != "a || b"', ['request.text =="a || b"']),
        ("request.turns != 2 || request.turns == 2", ["request.turns == 2"]),
        (
            "request.stream ? request.has_tools : !(request.turns in [2, 3])",
            ["request.stream", "request.has_tools", "request.turns in [2, 3]"],
        ),
        (
            'request.text.contains("(") || size(request.text) == 1',
            ['request.text.contains("(")', "size(request.text) == 1"],
        ),
        ("request.turns < 3 ? true : request.stream ? request.has_tools : false", None),
        ("request.has_tools || request.stream && !request.has_tools || request.turns > 2", None),
    ],
)
def test_a_formula_has_the_truth_of_its_condition(source: str, atoms: list[str] | None) -> None:
    formula, found = structure(source)
    assert atoms is None or [text.replace(" ", "") for text in found] == [text.replace(" ", "") for text in atoms]
    condition, parts = Condition(source), [Condition(text) for text in found]
    for values in VALUES:
        request = ReadRequest(values)
        assert truth(formula, lambda key, at=request: at.holds(parts[key])) is request.holds(condition)  # type: ignore[misc]


def test_an_open_formula_names_an_open_atom_and_is_decided_by_all_of_them() -> None:
    formula, atoms = structure("(request.has_tools || !request.stream) && request.turns > 2")
    assert truth(formula, lambda key: None) is None
    rng = random.Random(1)
    for _ in range(50):
        known: dict[int, bool] = {}
        while (choice := open_atom(formula, known.get)) is not None:
            assert choice[0] not in known
            known[choice[0]] = rng.random() < 0.5
        assert truth(formula, known.get) in (True, False)
        assert len(known) <= len(atoms)


def test_what_is_decided_does_not_depend_on_open_atoms() -> None:
    formula, atoms = structure("request.has_tools && request.stream")
    assert atoms == ["request.has_tools", "request.stream"]
    assert truth(formula, {0: False}.get) is False
    assert truth(formula, {0: True}.get) is None
    assert open_atom(formula, {0: True}.get) == (1, True)
