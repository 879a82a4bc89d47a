"""Grammars as the core takes them: llguidance's JSON form, made from response formats and tools."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from engine.front.response_format import ResponseFormat
from engine.front.tool_format import ToolFormat
from engine.front.tools import Tool, ToolUse

MAX_CALLS = 16
"""Most calls of one forced answer."""

# A space, or a line with its indentation, but no answer that consists of spaces.
_WHITE_SPACE = r"( |\r?\n[ \t]{0,40})?"


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must follow."""

    source: str
    param: str
    """The request's field it comes from, for errors."""


def make_grammar(
    response_format: ResponseFormat | None, use: ToolUse | None, tool_format: ToolFormat | None
) -> Grammar | None:
    """The grammar of a request; None: any text.

    1. A forced choice of tools: calls and nothing else.
    2. A schema, and tools that may be called: an answer that follows the schema, or calls.
    3. A schema alone.
    4. Tools that may be called: any text; its calls are recognised when they come.
    """
    schema = response_format.schema if response_format is not None else None
    is_strict = response_format is not None and response_format.is_strict
    if use is not None and tool_format is not None and (use.is_forced or schema is not None):
        start = "start: calls\n"
        if not use.is_forced and schema is not None:
            start = f"start: calls | answer\nanswer: %json {json.dumps(_with_options(schema, is_strict))}\n"
        source = {"lark_grammar": start + _calls(use, tool_format)}
        return Grammar(json.dumps({"grammars": [source]}), "tools" if schema is None else "response_format")
    if schema is None:
        return None
    return Grammar(json.dumps({"grammars": [{"json_schema": _with_options(schema, is_strict)}]}), "response_format")


def _calls(use: ToolUse, form: ToolFormat) -> str:
    """Rules for `calls`: one call, or several of them."""
    may_be_many = use.may_be_many and form.family != "llama3"
    rules = [f"call: {' | '.join(f'call_{i}' for i in range(len(use.allowed)))}"]
    for i, tool in enumerate(use.allowed):
        rules.append(f"call_{i}: {_call(i, tool, form)}")
        rules.append(f"arguments_{i}: %json {json.dumps(_with_options(tool.function.schema, tool.function.strict))}")
    if form.family == "mistral":
        calls = f'{_marker(form, form.opening)} "[" {_repeated(", ", may_be_many)} "]"'
    else:
        calls = _repeated("\n", may_be_many)
    return "\n".join([f"calls: {calls}", *rules]) + "\n"


def _repeated(separator: str, may_be_many: bool) -> str:
    return f"call ({json.dumps(separator)} call){{0,{MAX_CALLS - 1}}}" if may_be_many else "call"


def _call(index: int, tool: Tool, form: ToolFormat) -> str:
    head = json.dumps(f'{{"name": "{tool.function.name}", "{form.arguments_key}": ')
    call = f'{head} arguments_{index} "}}"'
    if form.family != "hermes":
        return call
    return f'{_marker(form, form.opening)} "\\n" {call} "\\n" {_marker(form, form.closing)}'


def _marker(form: ToolFormat, text: str) -> str:
    """A marker as its own token where the vocabulary has one, else as text."""
    token_id = form.marker_ids.get(text)
    return json.dumps(text) if token_id is None else f"<[{token_id}]>"


def _with_options(schema: dict[str, Any], is_strict: bool | None) -> dict[str, Any]:
    """The schema with our compiler options, whatever it said of them itself."""
    options = {"whitespace_pattern": _WHITE_SPACE, "lenient": not is_strict, "coerce_one_of": not is_strict}
    return {**schema, "x-guidance": options}
