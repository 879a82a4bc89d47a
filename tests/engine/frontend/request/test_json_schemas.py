"""Clients' schemas: size, references, literals, and keywords that nobody enforces."""

from __future__ import annotations

from typing import Any

import pytest

from engine.frontend.request.errors import ApiError
from engine.frontend.request.json_schemas import (
    MAX_LITERAL_CHARS,
    MAX_SCHEMA_BYTES,
    check_schema,
    compiled_schema,
    unenforced_keywords,
)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"description": "ä" * (MAX_SCHEMA_BYTES // 2)}, "must have a schema of at most"),
        ({"properties": {"a": {"$ref": "http://other/schema"}}}, "must refer inside its own schema only"),
        ({"x-foo": {"$ref": "http://x"}, "items": {"$ref": "#/x-foo"}}, "must refer inside its own schema only"),
        ({"$defs": {"a": {"$ref": "other.json"}}}, "must refer inside its own schema only"),
        ({"allOf": [{"if": {"contains": {"$ref": "/a"}}}]}, "must refer inside its own schema only"),
        ({"enum": ["x" * (MAX_LITERAL_CHARS + 1)]}, "must have no text of over 8192 characters; got 8193"),
        ({"properties": {"x" * (MAX_LITERAL_CHARS + 1): {}}}, "must have no text of over 8192 characters; got 8193"),
    ],
)
def test_a_schema_beyond_the_bounds_is_refused(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        check_schema(schema, "tools")
    assert (caught.value.status, caught.value.param) == (400, "tools")


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"a": {"type": "null"}}, "$ref": "#/$defs/a"},
        {"const": {"$ref": "http://only/data"}},
        {"description": "x" * (MAX_LITERAL_CHARS + 1)},
        {"properties": {"$ref": {"type": "string"}}},
        {"type": "object", "x-foo": {"$ref": "http://x"}},
        {"type": "object", "x-foo": {"a": {"items": {"$ref": "http://x"}}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"default": {"$ref": "http://x"}, "examples": [{"$ref": "http://x"}]},
    ],
)
def test_data_and_names_of_properties_are_no_references_and_a_description_no_literal(schema: dict[str, Any]) -> None:
    check_schema(schema, "tools")


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({"type": "object", "properties": {"not": {"type": "string"}}}, set()),
        ({"not": {}, "anyOf": [{"oneOf": []}]}, {"not", "oneOf"}),
        ({"uniqueItems": False, "contains": {}, "minContains": 0}, {"contains"}),
        ({"items": {"format": "date"}, "uniqueItems": True}, {"uniqueItems"}),
        ({"properties": {"a": {"format": "iri"}}}, {"format"}),
        ({"const": {"not": 1}, "enum": [{"if": 1}]}, set()),
        ({"pattern": "[[:alpha:]]", "items": {"patternProperties": {"(?x)a": {}}}}, {"pattern", "patternProperties"}),
        ({"pattern": '^[^"]$', "minProperties": 1, "required": ["a"]}, set()),
    ],
)
def test_keywords_that_do_not_bind_are_found_wherever_they_constrain(schema: dict[str, Any], found: set[str]) -> None:
    assert unenforced_keywords(schema) == found


def test_the_compilers_form_leaves_the_clients_schema_as_it_was() -> None:
    schema = {"type": "integer", "maximum": 2**53 + 1}
    assert compiled_schema(schema, "tools") != schema
    assert schema == {"type": "integer", "maximum": 2**53 + 1}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"pattern": "[[:alpha:]]"}, r"`p`: pattern: this engine cannot enforce .* must do without it"),
        ({"items": {"patternProperties": {"(?x)a": {}}}}, r"`p`: patternProperties: this engine cannot enforce"),
        ({"minProperties": 3, "required": ["a"]}, r"`p`: minProperties: this engine cannot enforce 3"),
    ],
)
def test_what_a_strict_schema_cannot_bind_is_refused_by_name(schema: dict[str, Any], message: str) -> None:
    check_schema(schema, "p")
    with pytest.raises(ApiError, match=message) as caught:
        check_schema(schema, "p", is_strict=True)
    assert (caught.value.status, caught.value.param) == (400, "p")
