"""Values between tags: alternatives of one type each, and what of them can be written."""

from __future__ import annotations

from typing import Any

import pytest

from engine.frontend.tools.tagged_values import value_form


@pytest.mark.parametrize(
    ("schema", "choices", "lengths", "documents"),
    [
        ({}, [], (0, None), []),
        ({"type": "string", "minLength": 2, "maxLength": 2**40}, [], (2, None), []),
        ({"type": "integer"}, [], None, [{"type": "integer"}]),
        ({"type": ["string", "null", "integer"]}, ["null"], (0, None), []),
        ({"enum": ["a", "a", 1, None]}, ["a", "1", "null"], None, []),
        ({"type": "string", "enum": ["a", 1], "const": "a"}, ["a"], None, []),
        ({"anyOf": [{"const": "a"}, {"type": "integer"}]}, ["a"], None, [{"type": "integer"}]),
        ({"anyOf": [{"type": "string", "maxLength": 4}, {"type": "string", "minLength": 5}]}, [], (0, None), []),
        ({"type": "string", "minLength": 1.5, "maxLength": 3.5}, [], (2, 3), []),
        ({"type": ["string", "null"], "maxLength": 3}, ["null"], (0, 3), []),
        ({"anyOf": [{"type": "string"}, {"enum": [True, False]}]}, ["true", "false"], (0, None), []),
        ({"type": "string", "anyOf": [{"maxLength": 2}, {"maxLength": 5}]}, [], (0, 5), []),
        ({"$defs": {"a": {"const": "x"}}, "allOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}, ["x"], None, []),
    ],
)
def test_a_schema_becomes_texts_values_and_documents(
    schema: dict[str, Any], choices: list[str], lengths: tuple[int, int | None] | None, documents: list[Any]
) -> None:
    form = value_form(schema, "</end>")
    assert (form.choices, form.lengths, form.documents) == (choices, lengths, documents)
    assert not form.unwritable
    assert not form.unenforced
    assert form.is_writable


def test_values_that_the_parser_would_read_as_others_cannot_be_written() -> None:
    form = value_form({"enum": ["5", 5, "a</end>", " null", None]}, "</end>")
    assert form.choices == ["5", "null"]
    assert form.unwritable == ["5", "a</end>", " null"]
    assert not value_form({"const": "</end>"}, "</end>").is_writable


@pytest.mark.parametrize(
    ("schema", "keywords"),
    [
        ({"type": "string", "pattern": "a", "minLength": 1}, {"pattern"}),
        ({"type": ["string", "object"], "required": ["a"], "maxLength": 3}, {"required", "maxLength"}),
        ({"anyOf": [{"type": "string", "minLength": 10}, {"type": "integer"}]}, {"minLength"}),
        (
            {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "string", "minLength": 4}]},
            {"minLength", "maxLength"},
        ),
        ({"anyOf": [{"type": "string"}, {"type": "boolean", "const": False}]}, {"const"}),
        ({"anyOf": [{"type": "string"}, {"enum": [1, 2]}]}, {"enum"}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, {"$ref"}),
        ({"anyOf": [{"minLength": 1}], "oneOf": [{"minLength": 1}]}, {"anyOf", "oneOf"}),
        ({"oneOf": [{"type": "string"}, {"type": ["string", "null"]}]}, {"oneOf"}),
        ({"enum": 5}, {"enum"}),
        ({"anyOf": []}, {"anyOf"}),
    ],
)
def test_what_a_value_need_not_follow_is_named(schema: dict[str, Any], keywords: set[str]) -> None:
    assert value_form(schema, "</end>").unenforced == keywords


def test_a_schema_without_values_has_none_to_write() -> None:
    assert not value_form({"type": "string", "enum": []}, "</end>").is_writable
    assert not value_form({"type": "integer", "const": "x"}, "</end>").is_writable
