"""Numbers that follow a schema are inside its bounds, however large those are; what cannot be stored is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLTokenizer

from engine.frontend.request.errors import ApiError
from engine.frontend.request.json_schemas import check_schema
from engine.frontend.request.number_bounds import exact_bounds
from engine.frontend.request.response_format import NamedSchema, ResponseFormat, check_response_format
from engine.frontend.tools.grammar import make_grammar
from engine.sampling.grammar import GrammarError, GrammarState, compile_grammar
from tests.engine.frontend.tiny_model import make_tokenizer

VOCABULARY = make_tokenizer()
COMPILER = LLTokenizer(VOCABULARY.to_str(), n_vocab=400, eos_token=[2])
SAFE = 2**53


def compiled(schema: dict[str, Any]) -> GrammarState:
    named = NamedSchema(name="n", schema=schema, strict=True)
    grammar = make_grammar(ResponseFormat(type="json_schema", json_schema=named), None, None)
    assert grammar is not None
    return compile_grammar(COMPILER, grammar.source)


def follows(state: GrammarState, text: str) -> bool:
    ids = VOCABULARY.encode(text, add_special_tokens=False).ids
    state = state.fork()
    if state.validate(ids) < len(ids):
        return False
    state.accept(ids)
    return state.may_end


VALID: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"minimum": 0, "maximum": SAFE}, ["0", "9007199254740992"], ["-1", "9007199254740993"]),
    ({"minimum": 0, "maximum": SAFE + 1}, ["7", "9007199254740992"], ["9007199254740994", "-1"]),
    ({"exclusiveMaximum": 2**60 + 1}, ["-5", "1152921504606846976"], ["1152921504606846977", "1152921504606846978"]),
    ({"exclusiveMaximum": 2**60}, ["1"], ["1152921504606846976"]),
    ({"exclusiveMinimum": -(2**60)}, ["1"], ["-1152921504606846976"]),
    ({"minimum": 2**62}, ["4611686018427387904", "4611686018427387999"], ["5", "4611686018427387903"]),
    ({"maximum": -(2**62)}, ["-4611686018427387904"], ["5", "-4611686018427387903"]),
    ({"minimum": -(2**63), "maximum": 2**63 - 1}, ["0", "-77", "9223372036854774784"], ["9223372036854775808"]),
    ({"minimum": 0, "maximum": 2**64 - 1}, ["0", "123456789012345678"], ["-1", "18446744073709551616"]),
    ({"maximum": 10**30, "minimum": 1.5}, ["2", "10"], ["1", "1" + "0" * 31]),
    ({"minimum": 1e15, "maximum": 1e300}, ["1000000000000000"], ["999999999999999"]),
    ({"minimum": 1, "maximum": 10}, ["1", "10"], ["0", "11"]),
]


@pytest.mark.parametrize(("bounds", "inside", "outside"), VALID)
def test_integers_are_inside(bounds: dict[str, Any], inside: list[str], outside: list[str]) -> None:
    state = compiled({"type": "integer", **bounds})
    assert [text for text in inside if not follows(state, text)] == []
    assert [text for text in outside if follows(state, text)] == []


REFUSED: list[dict[str, Any]] = [
    {"type": "integer", "minimum": SAFE + 1, "maximum": SAFE + 1},
    {"type": "integer", "minimum": 2**63},
    {"type": "integer", "minimum": 10**30},
    {"type": "integer", "exclusiveMaximum": -(2**63)},
    {"type": "number", "minimum": 1e20},
    {"type": "integer", "minimum": 10**400},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e-9},
    {"minimum": 2**60 + 1, "maximum": 2**60 + 2},
    {"type": "integer", "minimum": 2**60, "maximum": 3},
    {"type": "string", "minLength": 10**9},
    {"type": "array", "minItems": 10**9},
    {"type": "array", "minItems": 1e9},
    {"type": "object", "minProperties": 2**63},
]


@pytest.mark.parametrize("schema", REFUSED)
@pytest.mark.parametrize("place", [[], ["properties", "a"], ["anyOf"], ["$defs", "a", "items"], ["components", "b"]])
def test_what_cannot_be_stored_is_refused_by_its_keywords_name(schema: dict[str, Any], place: list[str]) -> None:
    inside: Any = schema
    for name in reversed(place):
        inside = [inside] if name == "anyOf" else inside
        inside = {name: inside}
    with pytest.raises(ApiError, match="|".join(schema.keys() - {"type"})) as caught:
        check_schema(inside, "response_format")
    assert (caught.value.status, caught.value.param) == (400, "response_format")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 5, "maximum": 3},
        {"type": "string", "minLength": 5, "maxLength": 3},
        {"type": "string", "minLength": -1},
        {"type": "string", "minLength": 1.5},
        {"type": "integer", "multipleOf": 0},
        {"type": "integer", "multipleOf": 2**54},
        {"type": "number", "multipleOf": 1e-300},
        {"type": "integer", "minimum": "1"},
        {"type": "integer", "maximum": True},
    ],
)
def test_what_the_compiler_refuses_it_names(schema: dict[str, Any]) -> None:
    check_schema(schema, "response_format")
    with pytest.raises(GrammarError, match="|".join([*(schema.keys() - {"type"}), "multiple"])):
        compiled(schema)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"minimum": 1, "exclusiveMaximum": 2.5}, {"minimum": 1, "exclusiveMaximum": 2.5}),
        ({"minLength": 2.0, "maxLength": 2**63}, {"minLength": 2}),
        ({"minItems": 3, "maxItems": 7}, {"minItems": 3, "maxItems": 7}),
        ({"exclusiveMinimum": True, "minimum": 2**60}, {"exclusiveMinimum": True, "minimum": 2**60}),
        ({"maximum": 10**30, "type": "integer"}, {"maximum": 2**63 - 1024, "type": "integer"}),
        ({"exclusiveMinimum": 1, "maximum": 1.5}, {"minimum": 1.000001, "maximum": 1.5}),
        ({"exclusiveMaximum": 0, "minimum": -0.5}, {"maximum": -0.000001, "minimum": -0.5}),
        ({"exclusiveMinimum": 0, "minimum": 0.3, "maximum": 0.5}, {"minimum": 0.3, "maximum": 0.5}),
    ],
)
def test_only_what_the_compiler_cannot_hold_is_changed(node: dict[str, Any], expected: dict[str, Any]) -> None:
    assert exact_bounds(node, "p") == expected


FAR = st.sampled_from([2**50, SAFE, SAFE + 1, 2**60 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 10**18, 10**19, 10**30])
NUMBERS = FAR | st.integers(0, 2**64) | st.integers(0, 99) | st.sampled_from([0.5, 0.001, 1e-7, 2.5, 99.25])
SIGNED = st.builds(lambda value, sign: value * sign, NUMBERS, st.sampled_from([1, -1]))
KEYWORDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYWORDS), SIGNED, min_size=1), st.sampled_from(["integer", "number", None]))
def test_no_number_outside_follows_a_schema(bounds: dict[str, Any], kind: str | None) -> None:
    schema = {**bounds, "type": kind} if kind else bounds
    try:
        check_schema(schema, "p")
        state = compiled(schema)
    except (ApiError, GrammarError):
        return
    exact = {keyword: Fraction(Decimal(repr(value))) for keyword, value in bounds.items()}
    for base in (*exact.values(), Fraction(0)):
        for step in (0, 1, -1, 1025, -1025, Fraction(1, 1000), Fraction(-1, 1000)):
            value = base + step
            text = format(Decimal(value.numerator) / Decimal(value.denominator), "f")
            value = Fraction(text)
            is_inside = (
                value >= exact.get("minimum", value)
                and value <= exact.get("maximum", value)
                and value > exact.get("exclusiveMinimum", value - 1)
                and value < exact.get("exclusiveMaximum", value + 1)
            )
            assert is_inside or not follows(state, text), text


VALUES = FAR | st.integers(-(2**64), 2**64) | st.integers(-99, 99) | st.sampled_from([0.5, 1e-7, 99.25, 1e18, 1e300])
WRAPPED = st.sampled_from([lambda value: value, lambda value: [value], lambda value: {"a": [{"b": value}]}])


def rounded(value: float) -> list[int]:
    """Whole numbers that a float, its shortest digits or 64 bits make of the value."""
    return [int(float(value)), int(Decimal(repr(float(value)))), max(-(2**63), min(2**63 - 1, int(value)))]


@settings(max_examples=60, deadline=None)
@given(VALUES, WRAPPED, st.sampled_from(["const", "enum", "typed enum"]))
def test_values_that_are_listed_are_written_exactly_or_refused(value: float, wrap: Any, how: str) -> None:
    listed = wrap(value)
    schema: dict[str, Any] = {"const": listed} if how == "const" else {"enum": ["x", listed]}
    if how == "typed enum":
        schema["type"] = {int: "integer", float: "number", list: "array", dict: "object"}[type(listed)]
    try:
        check_schema(schema, "p")
        state = compiled(schema)
    except (ApiError, GrammarError):
        is_refused = True
    else:
        is_refused = False
    assert abs(value) > SAFE or not is_refused
    if is_refused:
        return
    for other in (value - 1, value + 1, *rounded(value)):
        text = json.dumps(wrap(other))
        assert Decimal(repr(other)) == Decimal(repr(value)) or not follows(state, text), text


@pytest.mark.parametrize("value", [SAFE + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 1234567890123456789, 10**400])
def test_a_listed_number_that_would_be_rounded_is_refused(value: int) -> None:
    for schema in ({"const": value}, {"enum": [1, value]}, {"items": {"const": {"a": [value]}}}):
        for strict in (True, False):
            named = NamedSchema(name="n", schema=schema, strict=strict)
            with pytest.raises(ApiError, match=r"(const|enum): the number .* use a string") as caught:
                check_response_format(ResponseFormat(type="json_schema", json_schema=named))
            assert (caught.value.status, caught.value.param) == (400, "response_format")


@pytest.mark.parametrize("value", [0, -7, SAFE, -SAFE, 10**15, 10**18, 2**53 + 2, 0.1, 1e300])
def test_a_listed_number_that_is_stored_is_the_only_answer(value: float) -> None:
    state = compiled({"type": "number", "enum": [value]})
    text = format(Decimal(repr(value)), "f")
    assert follows(state, text)
    assert not follows(state, text + "0" if "." in text else text[:-1] + ("1" if text[-1] != "1" else "2"))


def test_schemas_with_integers_beyond_64_bits_are_sized() -> None:
    check_schema({"type": "integer", "default": 10**40}, "p")
    with pytest.raises(ApiError, match="enum"):
        check_schema({"type": "integer", "enum": [10**19]}, "p")
    assert json.dumps(compiled({"enum": ["a", 5]}).may_end) == "false"
