"""Bare text becomes JSON by the types that a schema allows."""

from __future__ import annotations

from typing import Any

import pytest

from engine.frontend.tools.argument_types import is_text, json_of, property_schema, types_of

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
    assert json_of(text, schema) == value


def test_references_are_followed_and_circles_end() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/text"}, "b": {"$ref": "#/$defs/loop"}, "c": True},
        "$defs": {"text": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}},
    }
    assert is_text(property_schema(schema, "a"))
    assert len(types_of(property_schema(schema, "b"))) == 7
    assert property_schema(schema, "c") == property_schema(schema, "z") == {}
