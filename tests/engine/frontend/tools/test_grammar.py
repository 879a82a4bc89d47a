"""Grammars of requests, compiled and walked: each family's calls, alone, beside a schema and inside text."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from llguidance import LLTokenizer

from engine.frontend.request.response_format import NamedSchema, ResponseFormat
from engine.frontend.request.tools import Tool, choose_tools
from engine.frontend.tools.grammar import Grammar, make_grammar
from engine.frontend.tools.tool_format import ToolFormat, choose_tool_format
from engine.sampling.grammar import GrammarState, compile_grammar
from tests.engine.frontend.tiny_model import make_tokenizer

ADDED = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<think>"]
TEMPLATES = {
    "hermes": "tools <tool_call>",
    "llama3": "tools ipython",
    "mistral": "tools [TOOL_CALLS]",
    "mistral_args": "tools [TOOL_CALLS] [ARGS]",
}
PARAMETERS = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}
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
        self.compiler_tokenizer = LLTokenizer(self.tokenizer.to_str(), n_vocab=420, eos_token=[2])

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
        ("mistral_args", ['[TOOL_CALLS]f[ARGS]{"x":5}', '[TOOL_CALLS]f[ARGS]{"x": 5}[TOOL_CALLS]g[ARGS]{"x": 6}']),
    ],
)
def test_required_calls_have_their_familys_form(bench: Bench, family: str, right: list[str]) -> None:
    state = bench.compile(make(bench, family))
    for text in right:
        assert bench.follows(state, text), text
    for text in ("hello", right[0][:-1], right[0].replace("5", '"5"'), right[0].replace('"f"', '"h"') + "!"):
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


@pytest.mark.parametrize("family", ["hermes", "llama3", "mistral", "mistral_args"])
def test_text_may_be_anything_until_a_strict_function_is_called(bench: Bench, family: str) -> None:
    assert make(bench, family, "auto") is None
    state = bench.compile(make(bench, family, "auto", strict=True))
    assert bench.follows(state, "hello <tool, { [TOOL")
    call = {
        "hermes": HERMES,
        "llama3": '{"name": "f", "parameters": {"x": 5}}',
        "mistral": '[TOOL_CALLS][{"name": "f", "arguments": {"x": 5}}]',
        "mistral_args": '[TOOL_CALLS]f[ARGS]{"x": 5}',
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
