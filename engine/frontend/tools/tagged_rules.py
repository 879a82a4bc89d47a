"""Grammar rules of calls whose arguments stand between tags, in the forms of Qwen3-Coder and GLM."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from engine.frontend.fields.faults import FieldRefusal
from engine.frontend.request.errors import ApiError, unsupported
from engine.frontend.request.tools import FunctionDefinition
from engine.frontend.tools.argument_types import argument_schemas
from engine.frontend.tools.lark_rules import ANY_TEXT, json_rule, marker_rule
from engine.frontend.tools.tagged_values import Node, ValueForm, value_form
from engine.frontend.tools.tool_format import KEY, ToolFormat

_COMPLEX: Final = frozenset({"$ref", "anyOf", "oneOf", "allOf", "patternProperties"})
"""Keywords of a function's schema with which its arguments may not simply be its properties."""
_UNENFORCED: Final = _COMPLEX | {
    *("not", "if", "then", "else", "const", "enum", "propertyNames", "dependentRequired", "dependentSchemas"),
    *("dependencies", "$dynamicRef", "$recursiveRef"),
}
"""Keywords of a function's schema that these rules do not enforce."""
_NAME: Final = re.compile(r"[^<>\s](?:[^<>]{0,254}[^<>\s])?")
"""Name of an argument that the parser finds in a tag."""


def tagged_call_rules(place: int, function: FunctionDefinition, form: ToolFormat) -> str:
    """Return the rule `call_0` of one tool and those of its arguments, which keep the order of the schema.

    Raises:
        ApiError: The tool is strict, and its schema cannot be enforced in this syntax, or an argument cannot be written
            in it (400).
    """
    if function.strict:
        if found := unenforced_in_tags(function.schema, form):
            raise _refusal(function, f"cannot enforce {', '.join(sorted(found))} of a strict tool")
        if _is_free(function):
            raise _refusal(function, "cannot enforce free arguments of a strict tool; state them as properties")
    rules, arguments = [], []
    required = _required(function.schema)
    for number, (name, schema) in enumerate(_arguments(function.schema).items()):
        if not _NAME.fullmatch(name):
            if function.strict or name in required:
                raise _refusal(function, f"cannot write the name {json.dumps(name)[:128]} of an argument")
            continue
        value = value_form(schema, _closing_text(form))
        is_missing = name in required and not value.is_writable
        if value.unwritable and (function.strict or is_missing):
            shown = json.dumps(value.unwritable[0], ensure_ascii=False)[:128]
            raise _refusal(function, f"cannot write the value {shown} of the argument {json.dumps(name)}")
        if is_missing:
            raise _refusal(
                function, f"cannot write the argument {json.dumps(name)[:128]}, whose schema allows no value"
            )
        if not value.is_writable:
            continue
        rule = f"argument_{place}_{number}"
        rules.append(_argument(rule, json.dumps(name), value, function.strict, form))
        arguments.append(rule if name in required else f"{rule}?")
    if _is_free(function):
        rule = f"argument_{place}"
        rules.append(_argument(rule, r"/[^<>\n]{1,64}/", ValueForm(lengths=(0, None)), False, form))
        arguments.append(f"{rule}{{0,32}}")
    if form.family == "qwen_coder":
        name, end = json.dumps(f"\n<function={function.name}>\n"), '"</function>\\n"'
    else:
        name, end = json.dumps(f"{function.name}\n"), ""
    return "\n".join([f"call_{place}: {name} {' '.join(arguments)} {end}", *rules])


def unenforced_in_tags(schema: Mapping[str, Any], form: ToolFormat) -> set[str]:
    """Return the keywords of a function's schema that its arguments need not follow in these syntaxes."""
    arguments, required = _arguments(schema), _required(schema)
    found = set(_UNENFORCED & schema.keys())
    if not required <= arguments.keys():
        found.add("required")
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    if isinstance(least, int | float) and least > len(arguments.keys() & required):
        found.add("minProperties")
    if isinstance(most, int | float) and most < len(arguments):
        found.add("maxProperties")
    for argument in arguments.values():
        found |= value_form(argument, _closing_text(form)).unenforced
    return found


def _arguments(schema: Mapping[str, Any]) -> dict[str, Node]:
    """Return the schemas of the arguments that a function may have by name; none of them if they may be others."""
    if _COMPLEX & schema.keys() and not (schema.get("properties") and _is_closed(schema)):
        return {}
    return argument_schemas(schema)


def _required(schema: Mapping[str, Any]) -> set[str]:
    listed = schema.get("required")
    return {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()


def _is_closed(schema: Mapping[str, Any]) -> bool:
    """Return whether a function has no arguments but its properties."""
    return schema.get("additionalProperties") is False and "patternProperties" not in schema


def _is_free(function: FunctionDefinition) -> bool:
    """Return whether a function takes arguments under names that its schema does not state."""
    schema = function.schema
    return not _is_closed(schema) and ("properties" not in schema or bool(_COMPLEX & schema.keys()))


def _refusal(function: FunctionDefinition, problem: str) -> ApiError:
    message = f"`tools` must do without it: the syntax of this model's calls {problem} (tool {function.name!r})."
    return unsupported(FieldRefusal("tools", message))


def _closing_text(form: ToolFormat) -> str:
    return "</parameter>" if form.family == "qwen_coder" else "</arg_value>"


def _argument(rule: str, key: str, form: ValueForm, is_strict: bool | None, syntax: ToolFormat) -> str:
    """Return the rules of one argument: its tags with the value between them."""
    if syntax.family == "qwen_coder":
        opening = f'"<parameter=" {key} ">\\n"'
        closing, is_lazy, after, padding = '"\\n</parameter>"', True, '"\\n"', r"\n"
    else:
        tags = [marker_rule(tag, syntax.marker_ids) for tag in (KEY, "</arg_key>", "<arg_value>", "</arg_value>")]
        opening = f'{tags[0]} {key} {tags[1]} "\\n" {tags[2]}'
        closing, is_lazy, after, padding = tags[3], not tags[3].startswith("<"), '"\\n"', ""
    value, choices = f"{rule}_value", [json.dumps(choice) for choice in form.choices]
    if form.lengths is None:
        documents = [f"{value}_{number}" for number in range(len(form.documents))]
        lines = [
            f"{name}: {json_rule(schema, is_strict)}" for name, schema in zip(documents, form.documents, strict=True)
        ]
        lines = [f"{rule}: {opening} {value} {closing} {after}", f"{value}: {' | '.join(choices + documents)}", *lines]
        return "\n".join(lines)
    terminal, (least, most) = value.upper(), form.lengths
    text, end = f"{ANY_TEXT}{_quantifier(least, most)}", re.escape(_closing_text(syntax)).replace("/", r"\/")
    if not is_lazy:
        texts = f"{terminal}: ({' | '.join([*choices, f'/{text}/'])}) & ~/{ANY_TEXT}*{end}{ANY_TEXT}*/"
        return f"{rule}: {opening} {value} {closing} {after}\n{value}: {terminal}\n{texts}"
    # A lazy lexeme ends at the first closing tag, unless the padding or a part of the least length is missing there.
    early = f"{ANY_TEXT}{{0,{least - 1}}}{end}{ANY_TEXT}*" if least else ""
    inner = f"{ANY_TEXT}*{end}{ANY_TEXT}+" if padding else early
    text = f"/{text}{padding}{end}/" + (f" & ~/{inner}/" if inner else "")
    texts = " | ".join([*(f"{choice} /{padding}{end}/" for choice in choices), text])
    return f"{rule}: {opening} {value} {after}\n{value}[lazy]: {terminal}\n{terminal}: {texts}"


def _quantifier(least: int, most: int | None) -> str:
    """Return the quantifier of a text's characters."""
    if not least and most is None:
        return "*"
    return f"{{{least},{'' if most is None else most}}}"
