"""Bare text becomes JSON by the types that a schema allows."""

from __future__ import annotations

from typing import Any

import pytest

from engine.frontend.tools.argument_types import argument_schemas, json_as, types_of

NUMBER_OR_TEXT = {"type": ["number", "string"]}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"type": "string"}, '"5"'),
        ("5", {"type": "integer"}, "5"),
        (" 5\n", {"type": "number"}, "5"),
        ("5", NUMBER_OR_TEXT, "5"),
        ("true", NUMBER_OR_TEXT, '"true"'),
        ("True", {"type": "boolean"}, "true"),
        ("None", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null"),
        ('{"a": [1]}', {"type": "object"}, '{"a": [1]}'),
        ("{'a': 1}", {"type": "object"}, "\"{'a': 1}\""),
        ("b", {"enum": ["a", "b"]}, '"b"'),
        ("2", {"enum": [1, 2]}, "2"),
        ("x y", {}, '"x y"'),
        ("[1]", {}, "[1]"),
        ("NaN", {"type": "number"}, '"NaN"'),
        ("[" * 5000, {}, '"' + "[" * 5000 + '"'),
    ],
)
def test_a_text_becomes_the_value_that_its_schema_allows(text: str, schema: dict[str, Any], value: str) -> None:
    assert json_as(text, types_of(schema)) == value


def test_references_are_followed_and_circles_end() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/A%20text~1"}, "b": {"$ref": "#/$defs/loop"}, "c": True, "d": False},
        "$defs": {"A text/": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}},
    }
    found = argument_schemas(schema)
    assert types_of(found["a"]) == {"string"}
    assert len(types_of(found["b"])) == 7
    assert found["c"] == {}
    assert "d" not in found
    assert argument_schemas({}) == argument_schemas({"properties": [1]}) == {}


def test_references_to_other_arguments_and_to_the_whole_schema_stay() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}, "c": {"items": {"$ref": "#"}}},
    }
    found = argument_schemas(schema)
    assert types_of(found["b"]) == {"string"}
    assert found["c"]["items"] == {"$ref": "#/$defs/(root)"}
    assert types_of({**found["c"]["items"], "$defs": found["c"]["$defs"]}) == {"object"}
    assert schema["properties"]["b"] == {"$ref": "#/properties/a"}


def test_an_argument_has_the_definitions_that_it_reaches() -> None:
    definitions = {"A": {"items": {"$ref": "#/$defs/B"}}, "B": {"type": "null"}, "C": {"$ref": "#/definitions/D"}}
    found = argument_schemas({
        "properties": {
            "plain": {"type": "integer"},
            "list": {"$ref": "#/$defs/A"},
            "other": {"anyOf": [{"$ref": "#/$defs/C"}, {"$ref": "#/$defs/missing"}, {"$ref": "#/properties/missing"}]},
            "own": {"$defs": {"Q": {"type": "string"}}, "properties": {"z": {"$ref": "#/$defs/B"}}},
            "inner": {"$ref": "#/properties/own/$defs/Q"},
        },
        "$defs": definitions,
        "definitions": {"D": {"const": 1}},
    })  # fmt: skip
    assert found["plain"] == {"type": "integer"}
    assert found["list"]["$defs"] == {"A": definitions["A"], "B": definitions["B"]}
    assert (found["other"]["$defs"], found["other"]["definitions"]) == ({"C": definitions["C"]}, {"D": {"const": 1}})
    assert found["own"]["$defs"] == {"B": definitions["B"]}
    assert types_of(found["inner"]) == {"string"}


def test_alternatives_and_references_count_at_any_plausible_depth() -> None:
    chain = {f"r{i}": {"anyOf": [{"$ref": f"#/$defs/r{i + 1}"}, {"type": "null"}]} for i in range(20)}
    schema = {"$ref": "#/$defs/r0", "$defs": {**chain, "r20": {"type": "string"}}}
    assert types_of(schema) == {"string", "null"}


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"allOf": [{"type": "string"}], "description": "x"}, {"string"}),
        ({"type": ["string", "null"], "enum": ["a"]}, {"string"}),
        ({"type": "number", "enum": [1, 2]}, {"integer"}),
        ({"type": "integer", "const": 2.0}, {"integer"}),
        ({"type": "string", "anyOf": [{"type": "null"}, {"minLength": 1}]}, {"string"}),
        ({"anyOf": [True, {"type": "null"}], "type": "null"}, {"null"}),
    ],
)
def test_every_keyword_narrows_the_types(schema: dict[str, Any], types: set[str]) -> None:
    assert types_of(schema) == types


def test_references_that_multiply_are_followed_once() -> None:
    definitions = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 50} for i in range(20)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**definitions, "d20": {"type": "string"}}}
    assert types_of(schema) <= types_of({})
