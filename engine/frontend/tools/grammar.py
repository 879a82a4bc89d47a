"""Grammars of response formats and tools in llguidance's JSON form."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from engine.frontend.request.json_schemas import compiled_schema, unenforced_keywords
from engine.frontend.request.response_format import ResponseFormat
from engine.frontend.request.tools import ToolUse
from engine.frontend.tools.tool_format import ARGS, ToolFormat

MAX_CALLS = 16
"""Maximum number of calls of one forced answer."""

# Allows a space or a line break with indentation, so that an answer cannot consist of spaces.
_WHITE_SPACE = r"( |\r?\n[ \t]{0,40})?"


@dataclass(frozen=True, slots=True)
class Grammar:
    """Grammar of an answer."""

    source: str
    param: str
    """Request field that the grammar comes from, for errors."""
    unenforced: tuple[str, ...] = ()
    """Keywords of schemas that are not strict and that the grammar does not enforce."""


def make_grammar(
    response_format: ResponseFormat | None, use: ToolUse | None, tool_format: ToolFormat | None
) -> Grammar | None:
    """Return the grammar of a request; None: any text.

    1. Forced tool choice: calls and nothing else.
    2. Schema and optional tools: an answer that follows the schema, or calls.
    3. Schema alone: an answer that follows it.
    4. Optional tools, one of them strict: any text in which the start of a call must become a valid call.
    5. Optional tools: any text; the parser finds the calls.
    """
    schema = response_format.schema if response_format is not None else None
    is_strict = response_format is not None and response_format.is_strict
    if use is not None and tool_format is not None and (use.is_forced or schema is not None):
        start = "start: calls\n"
        if not use.is_forced and schema is not None:
            start = f"start: calls | answer\nanswer: %json {json.dumps(_with_options(schema, is_strict))}\n"
        source: dict[str, Any] = {"lark_grammar": start + _calls(use, tool_format)}
        param = "tools" if schema is None else "response_format"
        return Grammar(json.dumps({"grammars": [source]}), param, _unenforced(use, None if is_strict else schema))
    if schema is None:
        if use is None or tool_format is None or not any(tool.function.strict for tool in use.allowed):
            return None
        source = {"lark_grammar": _text_with_calls(tool_format) + _calls(use, tool_format)}
        return Grammar(json.dumps({"grammars": [source]}), "tools", _unenforced(use, None))
    source = {"json_schema": _with_options(schema, is_strict)}
    return Grammar(
        json.dumps({"grammars": [source]}), "response_format", _unenforced(None, None if is_strict else schema)
    )


def _unenforced(use: ToolUse | None, schema: dict[str, Any] | None) -> tuple[str, ...]:
    """Return the unenforced keywords of the callable tools that are not strict, and of the answer's schema."""
    schemas = [] if schema is None else [schema]
    schemas += [tool.function.schema for tool in use.allowed if not tool.function.strict] if use is not None else []
    return tuple(sorted(set[str]().union(*map(unenforced_keywords, schemas))))


def _calls(use: ToolUse, form: ToolFormat) -> str:
    """Return the rules for `calls`, where `tail` follows an opening."""
    objects = range(len(use.allowed))
    rules = [f"object: {' | '.join(f'object_{i}' for i in objects)}"]
    for i, tool in enumerate(use.allowed):
        head = json.dumps(f'{{"name": "{tool.function.name}", "{form.arguments_key}": ')
        rules.append(f'object_{i}: {head} arguments_{i} "}}"')
        if form.family == "mistral_args":
            rules.append(f"named_{i}: {json.dumps(tool.function.name)} {_marker(form, ARGS)} arguments_{i}")
        rules.append(f"arguments_{i}: %json {json.dumps(_with_options(tool.function.schema, tool.function.strict))}")
    opening = _marker(form, form.opening)
    match form.family:
        case "hermes":
            rules.append(f'tail: "\\n" object "\\n" {_marker(form, form.closing)}')
            rules.append(f"calls: {_repeated(f'{opening} tail', chr(10), use.may_be_many)}")
        case "mistral":
            rules.append(f'tail: "[" {_repeated("object", ", ", use.may_be_many)} "]"')
            rules.append(f"calls: {opening} tail")
        case "mistral_args":
            rules.append(f"tail: {' | '.join(f'named_{i}' for i in objects)}")
            rules.append(f"calls: {_repeated(f'{opening} tail', '', use.may_be_many)}")
        case "llama3":
            rules.append("calls: object")
    return "\n".join(rules) + "\n"


def _text_with_calls(form: ToolFormat) -> str:
    """Return the start of a grammar of text in which the start of a call must become a valid call.

    1. Calls begin the answer: text is anything that does not begin like a call.
    2. The opening is one token, which is distinct from text.
    3. The opening is text: a lazy lexeme ends at its first occurrence, and only a call may follow.

    The compiler excludes tokens such as `<think>` from text, so they are allowed by id.
    """
    others = f"<[{','.join(map(str, form.other_ids))}]>" if form.other_ids else ""
    text = "TEXT: /(.|\\n)+/\n"
    if form.opens_bare:
        return "start: calls | PLAIN\nPLAIN: /[^{ \\t\\r\\n](.|\\n)*/\n"
    opening = _marker(form, form.opening)
    if form.opening in form.marker_ids:
        return f"start: ({' | '.join(filter(None, ('TEXT', others, 'calls')))})*\n{text}"
    parts = " | ".join(filter(None, ("lead tail", others)))
    return f"start: TEXT? (({parts}) TEXT?)*\nlead[lazy]: /(.|\\n)*/ {opening}\n{text}"


def _repeated(item: str, separator: str, may_be_many: bool) -> str:
    between = f"{json.dumps(separator)} " if separator else ""
    return f"{item} ({between}{item}){{0,{MAX_CALLS - 1}}}" if may_be_many else item


def _marker(form: ToolFormat, text: str) -> str:
    """Return a marker as its token if the vocabulary has one, otherwise as text."""
    token_id = form.marker_ids.get(text)
    return json.dumps(text) if token_id is None else f"<[{token_id}]>"


def _with_options(schema: dict[str, Any], is_strict: bool | None) -> dict[str, Any]:
    """Return the schema with our compiler options, which replace its own."""
    options = {"whitespace_pattern": _WHITE_SPACE, "lenient": not is_strict, "coerce_one_of": not is_strict}
    return {**compiled_schema(schema, "schema"), "x-guidance": options}
