"""Grammars as the core takes them: llguidance's JSON form, made from response formats and tools."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from engine.frontend.request.json_schemas import compiled_schema, unenforced_keywords
from engine.frontend.request.response_format import ResponseFormat
from engine.frontend.request.tools import ToolUse
from engine.frontend.tools.tool_format import ARGS, ToolFormat

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
    unenforced: tuple[str, ...] = ()
    """Keywords of schemas that are not strict and that the answer need not follow."""


def make_grammar(
    response_format: ResponseFormat | None, use: ToolUse | None, tool_format: ToolFormat | None
) -> Grammar | None:
    """The grammar of a request; None: any text.

    1. A forced choice of tools: calls and nothing else.
    2. A schema, and tools that may be called: an answer that follows the schema, or calls.
    3. A schema alone.
    4. Tools that may be called, one of them strict: any text in which what begins as a call is one.
    5. Tools that may be called: any text; its calls are recognised when they come.
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
    """Keywords that do not bind, of the tools that may be called and are not strict, and of an answer's schema."""
    schemas = [] if schema is None else [schema]
    schemas += [tool.function.schema for tool in use.allowed if not tool.function.strict] if use is not None else []
    return tuple(sorted(set[str]().union(*map(unenforced_keywords, schemas))))


def _calls(use: ToolUse, form: ToolFormat) -> str:
    """Rules for `calls`, one or several, of which `tail` is what stands behind an opening."""
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
    """The start of a grammar of text in which what begins as a call is one.

    1. Calls begin the answer: text is what does not begin like one.
    2. The opening is one token, so it can be told from text.
    3. The opening is text itself: a lazy lexeme ends where it comes first, and only a call can follow.

    Tokens such as `<think>` are no text to the compiler; they are let through by number.
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
    """A marker as its own token where the vocabulary has one, else as text."""
    token_id = form.marker_ids.get(text)
    return json.dumps(text) if token_id is None else f"<[{token_id}]>"


def _with_options(schema: dict[str, Any], is_strict: bool | None) -> dict[str, Any]:
    """The schema with our compiler options, whatever it said of them itself."""
    options = {"whitespace_pattern": _WHITE_SPACE, "lenient": not is_strict, "coerce_one_of": not is_strict}
    return {**compiled_schema(schema, "schema"), "x-guidance": options}
