"""Every subschema is visited, and nothing that only resembles one."""

from __future__ import annotations

from typing import Any

import pytest

from engine.frontend.request.schema_nodes import Node, map_schema, reached_nodes


def visited(schema: Node) -> list[str]:
    """Return the marks of the visited schemas, in order."""
    marks: list[str] = []

    def look(node: Node) -> Node:
        if isinstance(node.get("m"), str):
            marks.append(node["m"])
        return node

    map_schema(schema, look)
    return marks


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"properties": {"m": "in"}}, "m": "out"},
        {"$defs": {"a": {"items": {"m": "in"}}}, "m": "out"},
        {"anyOf": [True, {"m": "in"}], "m": "out"},
        {"components": {"schemas": {"m": "in"}}, "m": "out"},
        {"additionalProperties": {"m": "in"}, "m": "out"},
    ],
)
def test_inner_schemas_come_before_outer_ones(schema: Node) -> None:
    assert visited(schema) == ["in", "out"]


@pytest.mark.parametrize("keyword", ["enum", "const", "default", "examples"])
def test_data_is_not_a_schema(keyword: str) -> None:
    assert visited({keyword: [{"m": "in"}], "m": "out"}) == ["out"]


def test_a_property_of_the_name_of_a_keyword_is_a_schema() -> None:
    assert visited({"properties": {"const": {"m": "in"}}}) == ["in"]


def test_a_changed_copy_is_returned_and_the_schema_stays() -> None:
    schema: dict[str, Any] = {"items": [{"type": "string"}], "properties": {"a": {"type": "string"}, "b": None}}

    def upper(node: Node) -> Node:
        return {**node, "type": node["type"].upper()} if "type" in node else node

    assert map_schema(schema, upper) == {"items": [{"type": "STRING"}], "properties": {"a": {"type": "STRING"}}}
    assert schema["properties"] == {"a": {"type": "string"}, "b": None}


def test_nodes_that_constrain_are_reached_through_keywords_and_references_alone() -> None:
    schema: Node = {
        "m": "root",
        "properties": {"a": {"m": "property", "$ref": "#/x-list/1"}, "b": {"$ref": "#"}},
        "anyOf": [True, {"m": "variant", "const": {"m": "data"}}],
        "x-list": [{"m": "unknown"}, {"m": "referred", "not": {"m": "not"}}],
    }
    assert [node["m"] for node in reached_nodes(schema) if "m" in node] == [
        "root", "variant", "property", "referred", "not",
    ]  # fmt: skip
