"""References: the escapes of pointers and URIs, both ways."""

from __future__ import annotations

import pytest

from engine.frontend.schemas.references import encoded_reference, referred_value
from tests.engine.frontend.schemas.answers import allows_value, compiled

NAMES = {
    "Größe": "#/$defs/Größe",
    "List<int>": "#/$defs/List<int>",
    "A B": "#/$defs/A B",
    "A[B]": "#/$defs/A%5BB%5D",
    "a/b~c": "#/$defs/a~1b~0c",
    "100%": "#/$defs/100%",
    "x^y|{z}`": "#/$defs/x^y|{z}`",
}


@pytest.mark.parametrize(("name", "reference"), NAMES.items())
def test_a_definition_binds_under_any_name(name: str, reference: str) -> None:
    schema = {"$defs": {name: {"type": "integer"}, "other": {"type": "string"}}, "$ref": reference}
    assert (
        referred_value(schema, reference) == referred_value(schema, encoded_reference(reference)) == {"type": "integer"}
    )
    state, _ = compiled(schema)
    assert allows_value(state, 1)
    assert not allows_value(state, "a")


def test_a_reference_finds_members_and_elements_or_nothing() -> None:
    schema = {"anyOf": [{"a": 1}, {"b": 2}], "x": 3}
    assert referred_value(schema, "#") is schema
    assert referred_value(schema, "#/anyOf/1") == {"b": 2}
    for reference in ("#/anyOf/2", "#/anyOf/b", "#/x/y", "#/y", "#name", "http://x"):
        assert referred_value(schema, reference) is None


@pytest.mark.parametrize("reference", ["http://x/ y", "#/$defs/a%20b", "#", "#/$defs/A", "#name"])
def test_what_is_a_reference_already_stays(reference: str) -> None:
    assert encoded_reference(reference) == reference
