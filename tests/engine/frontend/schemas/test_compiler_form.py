"""Strict schemas bind whole: single nodes, and random schemas against an independent validator."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator, FormatChecker

from engine.frontend.request.errors import ApiError
from engine.frontend.request.tools import Tool, check_tools, choose_tools
from engine.frontend.tools.grammar import make_grammar
from engine.frontend.tools.tool_format import choose_tool_format
from engine.sampling.grammar import GrammarError, compile_grammar
from tests.engine.frontend.schemas.answers import allows, allows_value, compiled, compiler_tokenizer, random_answer
from tests.engine.frontend.schemas.random_schemas import NoValueError, SchemaMaker, ValueMaker

NUM_SCHEMAS = 30
FORMAT_CHECKER = FormatChecker(["date", "date-time", "email", "ipv4", "ipv6", "uuid", "duration", "hostname", "uri"])
COUNTED = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "array", "prefixItems": [{"type": "integer"}], "additionalItems": False}, [1], ["a"]),
        ({"type": "array", "items": [{"type": "integer"}], "anyOf": [{}], "additionalItems": False}, [1], [1, 2]),
        (
            {
                "patternProperties": {"^x": {"type": "integer"}},
                "anyOf": [{"type": "object"}],
                "additionalProperties": False,
            },
            {"x": 1},
            {"y": 1},
        ),
        ({"type": "string", "format": "date"}, "2024-02-29", "2023-02-29"),
        ({"type": "string", "format": "date"}, "2000-02-29", "1900-02-29"),
        ({"type": "string", "format": "date", "pattern": "^2"}, "2024-02-29", "1024-02-29"),
        ({"type": "string", "format": "date", "pattern": "^2"}, "2023-02-28", "2023-02-29"),
        ({"type": "string", "format": "time"}, "23:59:59Z", "12:00:60Z"),
        ({"type": "string", "format": "date-time"}, "2024-02-29T12:00:00.5Z", "2024-02-29T12:00:60Z"),
        ({"type": "string", "format": "date-time"}, "2023-03-01t12:00:00+01:00", "2023-02-29T12:00:00Z"),
    ],
)
def test_a_keyword_binds_beside_others(schema: dict[str, Any], right: Any, wrong: Any) -> None:
    state, _ = compiled(schema)
    assert allows_value(state, right)
    assert not allows_value(state, wrong)


@pytest.mark.parametrize("strict", [True, False])
def test_no_spelling_of_a_declared_name_escapes_its_schema(strict: bool) -> None:
    state, _ = compiled({"properties": {"foo": {"type": "integer"}}, "type": "object"}, strict=strict)
    assert allows(state, '{"foo": 1, "bar": "x"}')
    assert not allows(state, '{"f\\u006fo": "x"}')
    state, _ = compiled({"patternProperties": {"^f": {"type": "integer"}}, "type": "object"}, strict=strict)
    assert allows(state, '{"foo": 1, "bar": "x"}')
    assert not allows(state, '{"\\u0066oo": "x"}')


def test_control_characters_keep_their_escapes_where_names_cannot_be_confused() -> None:
    state, _ = compiled({"properties": {"foo": {"type": "string"}}, "type": "object", "additionalProperties": False})
    assert allows(state, '{"foo": "\\u001b[0m"}')


def test_a_count_that_one_repeated_name_would_meet_is_refused_or_listed() -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2}
    with pytest.raises(ApiError, match="minProperties: this engine cannot enforce 2") as caught:
        compiled(schema)
    assert caught.value.status == 400
    assert compiled(schema, strict=False)[1] == ("minProperties",)
    state, unenforced = compiled({**schema, "properties": {"a": {}}, "required": ["a"]})
    assert not unenforced
    assert allows(state, '{"a": 1, "b": 2}')
    assert not allows(state, '{"a": 1}')


def test_counts_that_the_compiler_would_misapply_are_listed() -> None:
    state, unenforced = compiled({**COUNTED, "maxProperties": 1}, strict=False)
    assert unenforced == ("maxProperties",)
    assert allows(state, '{"a": 1, "b": 2}')
    state, unenforced = compiled({**COUNTED, "minProperties": 2, "additionalProperties": False}, strict=False)
    assert unenforced == ("minProperties",)
    assert allows(state, '{"a": 1, "b": 2}')
    state, unenforced = compiled({**COUNTED, "minProperties": 1, "additionalProperties": False}, strict=False)
    assert not unenforced
    assert not allows(state, "{}")


def test_a_forced_call_of_a_tool_with_an_unreadable_pattern_is_served_and_the_pattern_listed() -> None:
    """The schema of a `Decimal` as Pydantic writes it."""
    price = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}]}
    parameters = {"type": "object", "properties": {"price": price}, "required": ["price"]}
    definition = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    tools = msgspec.convert([definition], list[Tool])
    check_tools(tools)
    form = choose_tool_format("{% if tools %}<tool_call>{% endif %}", {}, ())
    grammar = make_grammar(None, choose_tools(tools, "required", None), form)
    assert grammar is not None
    assert grammar.unenforced == ("pattern",)
    state = compile_grammar(compiler_tokenizer(), grammar.source)
    call = '<tool_call>\n{"name": "f", "arguments": {"price": "1.50"}}\n</tool_call>'
    assert allows(state, call)
    assert not allows(state, call.replace('"1.50"', "null"))


@pytest.mark.parametrize("keywords", [{"uniqueItems": False}, {"minContains": 0}])
def test_a_keyword_without_effect_is_no_reason_to_refuse_a_strict_schema(keywords: dict[str, Any]) -> None:
    state, unenforced = compiled({"type": "array", "items": {"type": "integer"}, **keywords})
    assert not unenforced
    assert allows_value(state, [1, 1])
    assert not allows_value(state, ["a"])


def test_names_of_an_unreadable_pattern_are_not_refused_as_additional_ones() -> None:
    patterns = {"^(?!a)": {"type": "integer"}, "^b": {"type": "integer"}}
    schema = {"type": "object", "patternProperties": patterns, "additionalProperties": False}
    state, unenforced = compiled(schema, strict=False)
    assert unenforced == ("additionalProperties", "patternProperties")
    assert allows_value(state, {"c": 1, "b": 2})
    assert not allows_value(state, {"b": "x"})
    with pytest.raises(ApiError, match="patternProperties: this engine cannot enforce"):
        compiled(schema)


def test_patterns_of_names_with_one_translation_both_bind() -> None:
    patterns = {r"^\s$": {"type": "number"}, r"^[\s]$": {"type": "integer"}}
    state, _ = compiled({"type": "object", "patternProperties": patterns, "additionalProperties": False})
    assert allows_value(state, {" ": 1})
    assert not allows_value(state, {" ": 1.5})


def test_a_format_binds_beside_an_unreadable_pattern() -> None:
    state, unenforced = compiled({"type": "string", "format": "date", "pattern": "^(?!a)"}, strict=False)
    assert unenforced == ("pattern",)
    assert allows_value(state, "2024-02-29")
    assert not allows_value(state, "2023-02-29")


def test_random_answers_are_valid_and_random_valid_values_are_answers() -> None:
    """Two comparisons with an independent validator, over random strict schemas of every keyword that is enforced."""
    maker, seen = SchemaMaker(7), Counter[str]()
    for _ in range(NUM_SCHEMAS):
        schema = maker.schema()
        validator = Draft202012Validator(schema, format_checker=FORMAT_CHECKER)
        try:
            state, unenforced = compiled(schema)
        except (ApiError, GrammarError):
            seen["refused"] += 1
            continue
        assert not unenforced
        for _ in range(6):
            answer = random_answer(state, maker.random)
            if answer is not None:
                seen["answers"] += 1
                assert validator.is_valid(json.loads(answer)), (schema, answer)
        values = ValueMaker(schema, Random(maker.random.random()))
        for _ in range(12):
            try:
                value = values.value()
            except NoValueError:
                continue
            if validator.is_valid(value):
                seen["values"] += 1
                assert allows_value(state, value), (schema, value)
    assert seen["refused"] < NUM_SCHEMAS / 2
    assert seen["answers"] > NUM_SCHEMAS
    assert seen["values"] > NUM_SCHEMAS
