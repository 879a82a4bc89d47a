"""Grammars of requests, compiled and walked: each family's calls, alone, beside a schema and inside text."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from llguidance import LLTokenizer

from engine.config import Reasoning
from engine.frontend.request.errors import ApiError
from engine.frontend.request.response_format import NamedSchema, ResponseFormat
from engine.frontend.request.tools import Tool, choose_tools
from engine.frontend.tools.grammar import Grammar, make_grammar
from engine.frontend.tools.reasoning_format import ReasoningFormat, ReasoningStart, choose_reasoning_format
from engine.frontend.tools.tagged_parser import TaggedCallParser
from engine.frontend.tools.tool_format import (
    DEEPSEEK_CALL,
    DEEPSEEK_CALL_END,
    DEEPSEEK_CALLS,
    DEEPSEEK_SEPARATOR,
    HARMONY_MARKERS,
    ToolFormat,
    choose_tool_format,
)
from engine.sampling.grammar import GrammarError, GrammarState, compile_grammar
from tests.engine.frontend.tiny_model import make_tokenizer

ADDED = [
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<think>", "</think>", "<|tool_call|>"),
    *(DEEPSEEK_CALL, DEEPSEEK_CALL_END, DEEPSEEK_SEPARATOR, *DEEPSEEK_CALLS, "<arg_key>", "</arg_key>"),
    *("<arg_value>", "</arg_value>", *HARMONY_MARKERS),
]
TEMPLATES = {
    "hermes": "tools <tool_call>",
    "llama3": "tools ipython",
    "mistral": "tools [TOOL_CALLS]",
    "mistral_args": "tools [TOOL_CALLS] [ARGS]",
    "granite": "tools <|tool_call|>",
    "deepseek": "tools <｜tool▁calls▁begin｜> ```json",
    "deepseek_v31": "tools <｜tool▁calls▁begin｜>",
    "qwen_coder": "tools <tool_call> <function=",
    "glm": "tools <tool_call> <arg_key>",
    "harmony": "tools <|channel|>analysis",
}
PARAMETERS = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}
BEGIN, END = DEEPSEEK_CALLS
QWEN_CODER = "<tool_call>\n<function=f>\n<parameter=x>\n5\n</parameter>\n</function>\n</tool_call>"
GLM = "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>5</arg_value>\n</tool_call>"
HERMES = '<tool_call>\n{"name": "f", "arguments": {"x": 5}}\n</tool_call>'


class Bench:
    """A vocabulary with or without markers as tokens of their own."""

    def __init__(self, *, has_markers: bool) -> None:
        self.tokenizer = make_tokenizer()
        if has_markers:
            self.tokenizer.add_tokens(ADDED)
        spec = json.loads(self.tokenizer.to_str())
        self.added = {token["content"]: token["id"] for token in spec["added_tokens"]}
        self.special = {token["content"] for token in spec["added_tokens"] if token["special"]}
        self.compiler_tokenizer = LLTokenizer(self.tokenizer.to_str(), n_vocab=440, eos_token=[2])

    def form(self, family: str) -> ToolFormat:
        added = {text: i for text, i in self.added.items() if family != "llama3" or text != "[TOOL_CALLS]"}
        form = choose_tool_format(TEMPLATES[family], added, self.special)
        assert form is not None
        assert form.family == family
        return form

    def compile(self, grammar: Grammar | None) -> GrammarState:
        assert grammar is not None
        return compile_grammar(self.compiler_tokenizer, grammar.source)

    def follows(self, state: GrammarState, text: str) -> bool:
        """Whether the text is a complete answer."""
        tokens = self.tokenizer.encode(text, add_special_tokens=False).ids
        fork = state.fork()
        if fork.validate(tokens) < len(tokens):
            return False
        fork.accept(tokens)
        return fork.may_end or fork.is_finished


@pytest.fixture(scope="module", params=[True, False], ids=["markers are tokens", "markers are text"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(has_markers=request.param)


def tools(*names: str, strict: bool | None = None) -> list[Tool]:
    defined = [{"type": "function", "function": {"name": n, "parameters": PARAMETERS, "strict": strict}} for n in names]
    return msgspec.convert(defined, list[Tool])


def make(
    bench: Bench, family: str, choice: Any = "required", *, strict: bool | None = None, many: bool | None = None
) -> Grammar | None:
    return make_grammar(None, choose_tools(tools("f", "g", strict=strict), choice, many), bench.form(family))


@pytest.mark.parametrize(
    ("family", "right"),
    [
        ("hermes", [HERMES, HERMES + "\n" + HERMES.replace('"f"', '"g"')]),
        ("llama3", ['{"name": "g", "parameters": {"x": 5}}']),
        (
            "mistral",
            [
                '[TOOL_CALLS][{"name": "f", "arguments": {"x":5}}]',
                '[TOOL_CALLS][{"name": "f", "arguments": {"x": 5}}, {"name": "g", "arguments": {"x": 6}}]',
            ],
        ),
        ("granite", ['<|tool_call|>[{"name": "f", "arguments": {"x":5}}]']),
        (
            "deepseek",
            [
                f"{BEGIN}{DEEPSEEK_CALL}function{DEEPSEEK_SEPARATOR}"
                f'f\n```json\n{{"x": 5}}\n```{DEEPSEEK_CALL_END}{END}',
            ],
        ),
        ("deepseek_v31", [f'{BEGIN}{DEEPSEEK_CALL}f{DEEPSEEK_SEPARATOR}{{"x": 5}}{DEEPSEEK_CALL_END}{END}']),
        ("qwen_coder", [QWEN_CODER, QWEN_CODER + "\n" + QWEN_CODER.replace("=f>", "=g>")]),
        ("glm", [GLM, GLM + "\n" + GLM.replace("f\n", "g\n")]),
        ("mistral_args", ['[TOOL_CALLS]f[ARGS]{"x":5}', '[TOOL_CALLS]f[ARGS]{"x": 5}[TOOL_CALLS]g[ARGS]{"x": 6}']),
    ],
)
def test_required_calls_have_their_familys_form(bench: Bench, family: str, right: list[str]) -> None:
    state = bench.compile(make(bench, family))
    for text in right:
        assert bench.follows(state, text), text
    for text in ("hello", right[0][:-1], right[0].replace("5", '"5"'), right[0] + "!"):
        assert not bench.follows(state, text), text


def test_only_one_call_where_only_one_may_be(bench: Bench) -> None:
    both = HERMES + "\n" + HERMES
    assert bench.follows(bench.compile(make(bench, "hermes")), both)
    assert not bench.follows(bench.compile(make(bench, "hermes", many=False)), both)
    named = {"type": "function", "function": {"name": "f"}}
    state = bench.compile(make(bench, "hermes", named))
    assert bench.follows(state, HERMES)
    assert not bench.follows(state, both)
    assert not bench.follows(state, HERMES.replace('"f"', '"g"'))


@pytest.mark.parametrize("family", ["hermes", "llama3", "mistral", "mistral_args", "qwen_coder", "glm"])
def test_text_may_be_anything_until_a_strict_function_is_called(bench: Bench, family: str) -> None:
    assert make(bench, family, "auto") is None
    state = bench.compile(make(bench, family, "auto", strict=True))
    assert bench.follows(state, "hello <tool, { [TOOL")
    call = {
        "hermes": HERMES,
        "llama3": '{"name": "f", "parameters": {"x": 5}}',
        "mistral": '[TOOL_CALLS][{"name": "f", "arguments": {"x": 5}}]',
        "mistral_args": '[TOOL_CALLS]f[ARGS]{"x": 5}',
        "qwen_coder": QWEN_CODER,
        "glm": GLM,
    }[family]
    assert bench.follows(state, call)
    assert not bench.follows(state, call.replace("5", '"5"'))
    if family != "llama3":
        assert bench.follows(state, f"Wait. {call} Done.")
        assert not bench.follows(state, f"Wait. {call[:25]}")


def test_a_reasoning_model_may_reason_before_a_strict_call() -> None:
    bench = Bench(has_markers=True)
    state = bench.compile(make(bench, "hermes", "auto", strict=True))
    assert bench.follows(state, "<think>hello world" + HERMES)


def test_beside_tools_an_answer_follows_its_schema(bench: Bench) -> None:
    response_format = ResponseFormat(type="json_schema", json_schema=NamedSchema(name="n", schema=PARAMETERS))
    grammar = make_grammar(response_format, choose_tools(tools("f"), "auto", None), bench.form("hermes"))
    assert grammar is not None
    assert grammar.param == "response_format"
    state = bench.compile(grammar)
    assert bench.follows(state, '{"x": 12}')
    assert bench.follows(state, HERMES)
    assert not bench.follows(state, "hello")


def test_text_needs_no_grammar_and_an_object_any_members(bench: Bench) -> None:
    assert make_grammar(ResponseFormat(type="text"), None, None) is None
    assert make_grammar(None, None, None) is None
    state = bench.compile(make_grammar(ResponseFormat(type="json_object"), None, None))
    for text in ('{"a": [1, {"b": null}]}', '{\n  "a": 1,\n  "b": "x"\n}', "{}"):
        assert bench.follows(state, text), text
    for text in ("[1]", '"x"', '{"a": 1}\n', '{"a":  \n\n 1}'):
        assert not bench.follows(state, text), text


def test_options_of_the_compiler_are_not_the_clients() -> None:
    schema = {"type": "object", "x-guidance": {"whitespace_pattern": ".*"}}
    response_format = ResponseFormat(type="json_schema", json_schema=NamedSchema(name="n", schema=schema))
    grammar = make_grammar(response_format, None, None)
    assert grammar is not None
    assert ".*" not in grammar.source


FREE = {"type": "function", "function": {"name": "f", "parameters": {
    "properties": {
        "mode": {"enum": ["a", "b"]}, "text": {"type": "string", "maxLength": 4}, "n": {"type": ["integer", "null"]},
    },
    "required": ["mode"],
}}}  # fmt: skip


def tagged(family: str, **arguments: str) -> str:
    if family == "glm":
        inner = "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>\n" for k, v in arguments.items())
        return f"<tool_call>f\n{inner}</tool_call>"
    inner = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function=f>\n{inner}</function>\n</tool_call>"


@pytest.mark.parametrize("family", ["qwen_coder", "glm"])
def test_tagged_arguments_follow_their_schema(bench: Bench, family: str) -> None:
    use = choose_tools(msgspec.convert([FREE], list[Tool]), "required", None)
    state = bench.compile(make_grammar(None, use, bench.form(family)))
    for right in (
        {"mode": "a"},
        {"mode": "b", "text": "x\ny"},
        {"mode": "a", "text": "", "n": "null"},
        {"mode": "a", "n": "7"},
    ):
        assert bench.follows(state, tagged(family, **right)), right
    wrongs: list[dict[str, str]] = [{}, {"text": "x"}, {"mode": "c"}, {"mode": "a", "text": "12345"}]
    for wrong in wrongs:
        assert not bench.follows(state, tagged(family, **wrong)), wrong


def test_a_strict_text_that_tags_cannot_enforce_is_refused() -> None:
    bench = Bench(has_markers=True)
    parameters = {"properties": {"x": {"type": "string", "pattern": "^a$"}}}
    function = {"name": "f", "parameters": parameters}
    relaxed = msgspec.convert([{"type": "function", "function": function}], list[Tool])
    grammar = make_grammar(None, choose_tools(relaxed, "required", None), bench.form("glm"))
    assert grammar is not None
    assert grammar.unenforced == ("pattern",)
    strict = msgspec.convert([{"type": "function", "function": {**function, "strict": True}}], list[Tool])
    with pytest.raises(ApiError, match="cannot enforce pattern"):
        make_grammar(None, choose_tools(strict, "required", None), bench.form("glm"))


def strictly(family: str, bench: Bench, parameters: dict[str, Any], *, strict: bool = True) -> Grammar:
    function = {"name": "f", "parameters": parameters, "strict": strict}
    use = choose_tools(msgspec.convert([{"type": "function", "function": function}], list[Tool]), "required", None)
    grammar = make_grammar(None, use, bench.form(family))
    assert grammar is not None
    return grammar


def closed(**properties: Any) -> dict[str, Any]:
    """Schema of an object with just these members, each of them required."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


COLOR = {"C": {"type": "string", "enum": ["red", "blue"]}}
TAGGED = pytest.mark.parametrize(("family", "tag"), [("qwen_coder", "</parameter>"), ("glm", "</arg_value>")])


@TAGGED
@pytest.mark.parametrize(
    "parameters", [closed(), {"type": "object", "additionalProperties": False}, {"properties": {}}]
)
def test_a_function_without_arguments_is_called_without_any(
    bench: Bench, family: str, tag: str, parameters: dict[str, Any]
) -> None:
    state = bench.compile(strictly(family, bench, parameters))
    assert bench.follows(state, tagged(family))
    assert not bench.follows(state, tagged(family, x="5"))


@TAGGED
def test_free_arguments_are_for_functions_that_are_not_strict(bench: Bench, family: str, tag: str) -> None:
    free = {"type": "object"}
    assert bench.follows(bench.compile(strictly(family, bench, free, strict=False)), tagged(family, x="5"))
    for parameters in (free, {"anyOf": [closed()]}, {"patternProperties": {"^x": {}}, "additionalProperties": False}):
        with pytest.raises(ApiError, match="cannot enforce"):
            strictly(family, bench, parameters)


@pytest.mark.parametrize(
    ("parameters", "keyword"),
    [
        ({**closed(a={"type": "integer"}), "required": ["a", "z"]}, "required"),
        ({"properties": {"a": False}, "required": ["a"]}, "required"),
        ({"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({"properties": {"a": {}, "b": {}}, "minProperties": 1}, "minProperties"),
        ({"properties": {"a": {}, "b": {}}, "maxProperties": 1}, "maxProperties"),
        ({"properties": {"a": {}}, "propertyNames": {"minLength": 2}}, "propertyNames"),
        ({"properties": {"a": {}}, "not": {"required": ["a"]}}, "not"),
        ({"properties": {"a": {}}, "const": {"a": 1}}, "const"),
        (closed(a={"type": "string", "not": {"const": "x"}}), "not"),
        ({**closed(a={"$ref": "#/$defs/C"}), "$defs": {"C": {"type": "string", "pattern": "^a"}}}, "pattern"),
        (closed(a={"anyOf": [{"type": "string"}, closed(k={})]}), "additionalProperties, properties, required"),
        (closed(a={"type": ["string", "integer"], "minimum": 3}), "minimum"),
        (closed(a={"oneOf": [{"const": "x"}, {"enum": ["x", "y"]}]}), "oneOf"),
        (closed(a={"type": "string", "enum": ["a"], "pattern": "^b"}), "pattern"),
        (closed(a={"minLength": 2, "allOf": [{"minLength": 3}]}), "allOf, minLength"),
    ],
)
@pytest.mark.parametrize("family", ["qwen_coder", "glm"])
def test_what_tags_cannot_enforce_is_refused_or_listed(family: str, parameters: dict[str, Any], keyword: str) -> None:
    bench = Bench(has_markers=True)
    with pytest.raises(ApiError, match=f"cannot enforce {keyword} of a strict tool"):
        strictly(family, bench, parameters)
    assert set(keyword.split(", ")) <= set(strictly(family, bench, parameters, strict=False).unenforced)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"$ref": "#/$defs/C"}, ["red"], ["green", '"red"']),
        ({"allOf": [{"$ref": "#/$defs/C"}], "description": "x"}, ["red"], ["green"]),
        ({"anyOf": [{"$ref": "#/$defs/C"}, {"type": "null"}]}, ["red", "null"], ["green", '"red"']),
        ({"anyOf": [{"const": "x"}, {"const": "y"}]}, ["x", "y"], ["z"]),
        ({"oneOf": [{"const": "x"}, {"type": "integer", "minimum": 3}]}, ["x", "3"], ["z", "2"]),
        ({"enum": ["a", 1, None]}, ["a", "1", "null"], ["2", '"a"']),
        ({"type": "string", "enum": ["a", "bb"], "minLength": 2}, ["bb"], ["a"]),
        ({"type": ["string", "null"]}, ["null", "text", '"quoted"'], []),
        ({"type": ["string", "null"], "maxLength": 2}, ["null", "ab", ""], ["abc"]),
        ({"type": "string", "minLength": 1, "maxLength": 3.0}, ["a", "\n", "ab\n"], ["", "abcd"]),
        ({"type": ["string", "integer"]}, ["5", "x"], []),
        ({"enum": ["", "x\ny", 'q"\\', "é😀"]}, ["", "x\ny", 'q"\\', "é😀"], ["x"]),
    ],
)
@TAGGED
def test_the_parser_reads_what_the_grammar_lets_pass(
    bench: Bench, family: str, tag: str, schema: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    parameters = {**closed(x=schema), "$defs": COLOR}
    state = bench.compile(strictly(family, bench, parameters))
    for text in right:
        answer = tagged(family, x=text)
        assert bench.follows(state, answer), text
        parser = TaggedCallParser(bench.form(family), {"f": parameters}, lambda: "id")
        found = parser.feed(answer) + parser.finish()
        assert found.text == ""
        arguments = json.loads("".join(call.arguments for call in found.calls))
        assert Draft202012Validator(parameters).is_valid(arguments), arguments
    for text in wrong:
        assert not bench.follows(state, tagged(family, x=text)), text


@TAGGED
def test_no_text_has_the_tag_that_ends_it(bench: Bench, family: str, tag: str) -> None:
    for lengths in ({}, {"maxLength": 40}, {"minLength": 2}, {"minLength": 1, "maxLength": 2000}):
        schema = {"type": "string", **lengths}
        state = bench.compile(strictly(family, bench, closed(x=schema)))
        assert bench.follows(state, tagged(family, x=f"a{tag[:-1]}b"))
        for text in (f"a{tag}b", f"a\n{tag}b", tag):
            assert not bench.follows(state, tagged(family, x=text)), text


@TAGGED
@pytest.mark.parametrize(("least", "most"), [(0, 255), (0, 100_000), (1, 255), (100, 200), (200, 2000), (300, None)])
def test_texts_of_any_length_can_be_bounded(bench: Bench, family: str, tag: str, least: int, most: int | None) -> None:
    lengths = {"minLength": least} | ({} if most is None else {"maxLength": most})
    state = bench.compile(strictly(family, bench, closed(x={"type": "string", **lengths})))
    text = "a < b\n" * 400
    assert bench.follows(state, tagged(family, x=text[:least]))
    assert bench.follows(state, tagged(family, x=text[: least + 20]))
    assert least == 0 or not bench.follows(state, tagged(family, x=text[: least - 1]))
    assert most is None or most > len(text) or not bench.follows(state, tagged(family, x=text[: most + 1]))


@TAGGED
def test_an_optional_argument_without_a_value_is_left_out(bench: Bench, family: str, tag: str) -> None:
    for schema in ({"type": "string", "enum": []}, {"type": "integer", "const": "x"}):
        parameters = {**closed(x=schema, y={"type": "integer"}), "required": ["y"]}
        for strict in (True, False):
            state = bench.compile(strictly(family, bench, parameters, strict=strict))
            assert bench.follows(state, tagged(family, y="5"))
            assert not bench.follows(state, tagged(family, x="x", y="5"))
        with pytest.raises(ApiError, match='the argument "x", whose schema allows no value'):
            strictly(family, bench, closed(x=schema))
    unwritable = {"properties": {"x": {"const": tag}}}
    assert bench.follows(bench.compile(strictly(family, bench, unwritable, strict=False)), tagged(family))


@TAGGED
def test_definitions_are_written_where_they_are_used(bench: Bench, family: str, tag: str) -> None:
    fields = {name: {"type": "string", "description": "d" * 40} for name in "abcdefgh"}
    models = {f"M{number}": {"type": "object", "properties": fields} for number in range(40)}
    arguments = {f"x{number}": {"$ref": f"#/$defs/M{number}"} for number in range(40)}
    parameters = {"properties": arguments, "$defs": models}
    source = strictly(family, bench, parameters, strict=False).source
    assert len(source) < 4 * len(json.dumps(parameters))


@TAGGED
def test_a_value_that_cannot_be_written_is_left_out_or_named(bench: Bench, family: str, tag: str) -> None:
    for value, schema in ((tag, {"type": "string", "enum": ["a", f"x{tag}"]}), ("5", {"enum": ["a", "5", 6]})):
        with pytest.raises(ApiError, match=f'cannot write the value .*{value}.* of the argument "x"'):
            strictly(family, bench, closed(x=schema))
        state = bench.compile(strictly(family, bench, closed(x=schema), strict=False))
        assert bench.follows(state, tagged(family, x="a"))
        assert not bench.follows(state, tagged(family, x=value))
    with pytest.raises(ApiError, match="cannot write the value"):
        strictly(family, bench, closed(x={"const": tag}), strict=False)


@TAGGED
def test_a_name_that_no_tag_can_hold_is_left_out_or_named(bench: Bench, family: str, tag: str) -> None:
    for name in ("List<int>", " a", "", "x" * 300):
        for parameters, strict in (({"properties": {name: {}}}, True), ({**closed(**{name: {}})}, False)):
            with pytest.raises(ApiError, match="cannot write the name"):
                strictly(family, bench, parameters, strict=strict)
        assert bench.compile(strictly(family, bench, {"properties": {name: {}}}, strict=False))


@TAGGED
def test_an_argument_may_refer_to_the_whole_schema(bench: Bench, family: str, tag: str) -> None:
    parameters = closed(x={"type": "integer"}, next={"anyOf": [{"$ref": "#"}, {"type": "null"}]})
    state = bench.compile(strictly(family, bench, parameters))
    assert bench.follows(state, tagged(family, x="1", next="null"))
    assert bench.follows(state, tagged(family, x="1", next='{"x": 2, "next": null}'))
    assert not bench.follows(state, tagged(family, x="1", next='{"y": 2}'))


@pytest.mark.parametrize("keyword", [
    "type", "properties", "required", "minProperties", "maxProperties", "additionalProperties", "patternProperties",
    "anyOf", "allOf", "$defs", "$ref", "enum",
])  # fmt: skip
@pytest.mark.parametrize(
    "value", [None, True, 1, 2.5, "x", [], [1], [[]], {}, {"a": 1}, {"a": {"enum": 5, "minLength": "x"}}]
)
@pytest.mark.parametrize("strict", [True, False])
def test_a_malformed_schema_is_refused_or_read(keyword: str, value: Any, strict: bool) -> None:
    bench = Bench(has_markers=True)
    for parameters in ({"properties": {"a": {"type": "string"}}, keyword: value}, closed(a={keyword: value, "x": 1})):
        try:
            state = bench.compile(strictly("glm", bench, parameters, strict=strict))
        except (ApiError, GrammarError):
            continue
        assert not state.is_finished


def test_references_that_multiply_cost_little() -> None:
    definitions = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 50} for i in range(20)}
    parameters = {**closed(x={"$ref": "#/$defs/d0"}), "$defs": {**definitions, "d20": {"type": "string"}}}
    bench = Bench(has_markers=True)
    with pytest.raises(ApiError, match=r"cannot enforce \$ref of a strict tool"):
        strictly("glm", bench, parameters)


ANSWER = ResponseFormat(type="json_schema", json_schema=NamedSchema(name="n", schema=PARAMETERS))


def reasoning(bench: Bench, family: Reasoning = "think") -> ReasoningFormat:
    form = choose_reasoning_format(family, "", bench.added, bench.special)
    assert form is not None
    return form


@pytest.mark.parametrize("start", ["inside", "open"])
def test_reasoning_is_free_and_the_answer_behind_it_is_not(bench: Bench, start: ReasoningStart) -> None:
    state = bench.compile(make_grammar(ANSWER, None, None, reasoning(bench), start))
    opening = "" if start == "inside" else "<think>"
    thoughts = 'hello {"x": "no"} <tool_call> world\n'
    for right in ('{"x": 5}', '\n\n{"x": 5}'):
        assert bench.follows(state, f"{opening}{thoughts}</think>{right}")
    assert bench.follows(state, f"{opening}</think>" + '{"x": 5}')
    assert bench.follows(state, '{"x": 5}') == (start == "open")
    for wrong in (thoughts, "</think>", "</think>hello", '</think>{"x": "no"}', '</think>{"x": 5}</think>'):
        assert not bench.follows(state, opening + thoughts + wrong), wrong


def test_behind_closed_reasoning_only_the_answer_counts(bench: Bench) -> None:
    state = bench.compile(make_grammar(ANSWER, None, None, reasoning(bench), "behind"))
    assert bench.follows(state, '{"x": 5}')
    assert not bench.follows(state, '<think>hello</think>{"x": 5}')


def test_calls_follow_reasoning(bench: Bench) -> None:
    use, form = choose_tools(tools("f"), "required", None), bench.form("hermes")
    forced = bench.compile(make_grammar(None, use, form, reasoning(bench), "open"))
    assert bench.follows(forced, f"<think>hello <tool_call> world</think>\n\n{HERMES}")
    assert bench.follows(forced, HERMES)
    assert not bench.follows(forced, "<think>hello</think>hello")

    strict = choose_tools(tools("f", strict=True), "auto", None)
    state = bench.compile(make_grammar(None, strict, form, reasoning(bench), "inside"))
    assert bench.follows(state, f"hello <tool_call> world</think>\nhello\n{HERMES}")
    assert bench.follows(state, "hello</think>hello")
    assert not bench.follows(state, "hello</think>" + HERMES.replace("5", '"5"'))

    both = bench.compile(make_grammar(ANSWER, choose_tools(tools("f"), "auto", None), form, reasoning(bench), "inside"))
    assert bench.follows(both, "hello</think>" + '{"x": 5}')
    assert bench.follows(both, "hello</think>\n" + HERMES)


def test_a_tagged_answer_keeps_its_tags(bench: Bench) -> None:
    state = bench.compile(make_grammar(ANSWER, None, None, reasoning(bench, "think_response"), "open"))
    assert bench.follows(state, "<think>hello</think>\n<response>" + '{"x": 5}</response>')
    assert bench.follows(state, "<think>hello</think>" + '{"x": 5}')
    assert not bench.follows(state, "<think>hello</think><response>" + '{"x": 5}')


NOTE = "<|channel|>analysis<|message|>hello world<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"
TO_F = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"


def test_harmony_reasons_in_messages_before_the_last() -> None:
    bench = Bench(has_markers=True)
    form, harmony = bench.form("harmony"), reasoning(bench, "harmony")
    answer = bench.compile(make_grammar(ANSWER, None, None, harmony, "open"))
    preamble = NOTE.replace("analysis", "commentary")
    for before in ("", NOTE, NOTE * 2):
        assert bench.follows(answer, before + FINAL + '{"x": 5}'), before
    assert not bench.follows(answer, preamble + FINAL + '{"x": 5}')
    for wrong in ('{"x": 5}', NOTE, NOTE + FINAL + "hello", FINAL + '{"x": "5"}'):
        assert not bench.follows(answer, wrong), wrong

    forced = bench.compile(make_grammar(None, choose_tools(tools("f"), "required", None), form, harmony, "open"))
    for head in (TO_F, TO_F.replace(" <|constrain|>json", ""), TO_F.replace("<|constrain|>", "")):
        assert bench.follows(forced, NOTE + head + '{"x": 5}'), head
    assert bench.follows(forced, preamble + TO_F + '{"x": 5}')
    assert not bench.follows(forced, NOTE + FINAL + "hello")

    strict = choose_tools(tools("f", strict=True), "auto", None)
    state = bench.compile(make_grammar(None, strict, form, harmony, "open"))
    assert bench.follows(state, NOTE + FINAL + "hello <think>")
    assert bench.follows(state, NOTE + TO_F + '{"x": 5}')
    assert not bench.follows(state, NOTE + TO_F + '{"x": "5"}')


@pytest.mark.parametrize("family", [name for name in TEMPLATES if name != "harmony"])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "odd"}}])
def test_the_compilers_report_leads_to_the_tool_whose_schema_it_is(bench: Bench, family: str, choice: Any) -> None:
    odd = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "object", "not": {}}}}
    schemas = {"f": PARAMETERS, "odd": odd, "g": PARAMETERS}
    defined = [
        {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
        for name, schema in schemas.items()
    ]
    use = choose_tools(msgspec.convert(defined, list[Tool]), choice, None)
    schema = {"type": "object", "properties": {"c": {"type": "integer"}}, "additionalProperties": False}
    answer = ResponseFormat(type="json_schema", json_schema=NamedSchema(name="n", schema=schema))
    for grammar in (make_grammar(None, use, bench.form(family)), make_grammar(answer, use, bench.form(family))):
        assert grammar is not None
        with pytest.raises(GrammarError) as caught:
            bench.compile(grammar)
        field, reason = grammar.fault(str(caught.value))
        assert field == "tools[1].function.parameters"
        assert reason == 'Unimplemented keys: ["not"]'


def test_a_report_about_anything_else_leads_to_the_field_of_the_grammar(bench: Bench) -> None:
    grammar = make(bench, "hermes")
    assert grammar is not None
    assert grammar.fault("too complex") == ("tools", "too complex")
    assert grammar.fault("at 1(3): no such rule") == ("tools", "no such rule")
    assert grammar.fault("at 900(3): no such rule") == ("tools", "no such rule")
    schema = ResponseFormat(type="json_schema", json_schema=NamedSchema(name="n", schema={"not": {}}, strict=True))
    alone = make_grammar(schema, None, None)
    assert alone is not None
    with pytest.raises(GrammarError) as caught:
        bench.compile(alone)
    assert alone.fault(str(caught.value)) == ("response_format", 'Unimplemented keys: ["not"]')
