"""Grammar rules of tool calls in each family's syntax: `calls`, where `tail` follows an opening."""

from __future__ import annotations

import json

from engine.frontend.request.tools import ToolUse
from engine.frontend.tools.lark_rules import ANY_TEXT, ids_rule, json_rule, marker_rule, repeated_rule
from engine.frontend.tools.tagged_rules import tagged_call_rules
from engine.frontend.tools.tool_format import (
    ARGS,
    DEEPSEEK_CALL,
    DEEPSEEK_CALL_END,
    DEEPSEEK_SEPARATOR,
    HARMONY_MARKERS,
    ToolFormat,
)


def call_rules(use: ToolUse, form: ToolFormat) -> str:
    """Return the rules for `calls`."""
    if form.has_tagged_arguments:
        rules = [tagged_call_rules(i, tool.function, form) for i, tool in enumerate(use.allowed)]
        rules.append(f"call: {_any_of('call', use)}")
    else:
        rules = [_named_call(i, use, form) for i in range(len(use.allowed))]
    opening, closing = marker_rule(form.opening, form.marker_ids), marker_rule(form.closing, form.marker_ids)
    many = use.may_be_many
    match form.family:
        case "hermes":
            rules.append(f'object: {_any_of("object", use)}\ntail: "\\n" object "\\n" {closing}')
            rules.append(f"calls: {repeated_rule(f'{opening} tail', chr(10), many)}")
        case "qwen_coder" | "glm":
            rules.append(f"tail: call {closing}")
            rules.append(f"calls: {repeated_rule(f'{opening} tail', chr(10), many)}")
        case "mistral" | "granite":
            rules.append(f'object: {_any_of("object", use)}\ntail: "[" {repeated_rule("object", ", ", many)} "]"')
            rules.append(f"calls: {opening} tail")
        case "mistral_args":
            rules.append(f"tail: {_any_of('named', use)}")
            rules.append(f"calls: {repeated_rule(f'{opening} tail', '', many)}")
        case "deepseek" | "deepseek_v31":
            between = "\n" if form.family == "deepseek" else ""
            rules.append(f"call: {_any_of('named', use)}\ntail: {repeated_rule('call', between, many)} {closing}")
            rules.append(f"calls: {opening} tail")
        case "harmony":
            rules.append(f"calls: {_any_of('named', use)}")
        case "llama3":
            rules.append(f"object: {_any_of('object', use)}\ncalls: object")
    return "\n".join(rules) + "\n"


def text_with_call_rules(form: ToolFormat) -> str:
    """Return the rules of `body`, any text in which the start of a call must become a valid call.

    1. Calls begin the answer: text is anything that does not begin like a call.
    2. The opening is one token, which is distinct from text.
    3. The opening is text: a lazy lexeme ends at its first occurrence, and only a call may follow.

    The compiler excludes tokens such as `<think>` from text, so they are allowed by id.
    """
    others = ids_rule(form.other_ids)
    text = f"TEXT: /{ANY_TEXT}+/\n"
    if form.opens_bare:
        return f"body: calls | PLAIN\nPLAIN: /[^{{ \\t\\r\\n]{ANY_TEXT}*/\n"
    opening = marker_rule(form.opening, form.marker_ids)
    if form.opening in form.marker_ids:
        return f"body: ({' | '.join(filter(None, ('TEXT', others, 'calls')))})*\n{text}"
    parts = " | ".join(filter(None, ("lead tail", others)))
    return f"body: TEXT? (({parts}) TEXT?)*\nlead[lazy]: /{ANY_TEXT}*/ {opening}\n{text}"


def _named_call(place: int, use: ToolUse, form: ToolFormat) -> str:
    """Return the rules `object_0` or `named_0` of one tool, and its `arguments_0`."""
    function = use.allowed[place].function
    arguments = f"arguments_{place}: {json_rule(function.schema, function.strict)}"
    name, inner = json.dumps(function.name), f"arguments_{place}"

    def marker(text: str) -> str:
        return marker_rule(text, form.marker_ids)

    match form.family:
        case "mistral_args":
            rule = f"named_{place}: {name} {marker(ARGS)} {inner}"
        case "deepseek":
            head = f'{marker(DEEPSEEK_CALL)} "function" {marker(DEEPSEEK_SEPARATOR)}'
            fenced = f'{json.dumps(function.name + chr(10) + "```json" + chr(10))} {inner} "\\n```"'
            rule = f"named_{place}: {head} {fenced} {marker(DEEPSEEK_CALL_END)}"
        case "deepseek_v31":
            head = f"{marker(DEEPSEEK_CALL)} {name} {marker(DEEPSEEK_SEPARATOR)}"
            rule = f"named_{place}: {head} {inner} {marker(DEEPSEEK_CALL_END)}"
        case "harmony":
            _, channel, message, constrain = map(marker, HARMONY_MARKERS[:4])
            recipient = json.dumps(f"commentary to=functions.{function.name}")
            rule = f'named_{place}: {channel} {recipient} (" "? {constrain} "json" | " json")? {message} {inner}'
        case _:
            head = json.dumps(f'{{"name": "{function.name}", "{form.arguments_key}": ')
            rule = f'object_{place}: {head} {inner} "}}"'
    return f"{rule}\n{arguments}"


def _any_of(rule: str, use: ToolUse) -> str:
    return " | ".join(f"{rule}_{place}" for place in range(len(use.allowed)))
