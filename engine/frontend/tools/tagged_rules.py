"""Grammar rules of calls whose arguments stand between tags, in the forms of Qwen3-Coder and GLM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from engine.frontend.fields.faults import FieldRefusal
from engine.frontend.request.errors import unsupported
from engine.frontend.request.tools import FunctionDefinition
from engine.frontend.tools.argument_types import is_text, property_schema
from engine.frontend.tools.lark_rules import ANY_TEXT, json_rule, marker_rule
from engine.frontend.tools.tool_format import KEY, ToolFormat

_UNENFORCED: Final = frozenset({"pattern", "format"})
"""Keywords of a text that these rules do not enforce."""
_COMPLEX: Final = frozenset({"$ref", "anyOf", "oneOf", "allOf", "patternProperties"})
"""Keywords of a function's schema with which its arguments are not simply its properties."""


def tagged_call_rules(place: int, function: FunctionDefinition, form: ToolFormat) -> str:
    """Return the rule `call_0` of one tool and those of its arguments, which keep the order of the schema.

    Raises:
        ApiError: The tool is strict, and its schema cannot be enforced in this syntax (400).
    """
    if function.strict and (found := unenforced_texts(function.schema)):
        kinds = ", ".join(sorted(found))
        message = f"the syntax of this model's calls cannot enforce {kinds} of the strict tool {function.name!r}"
        raise unsupported(FieldRefusal("tools", f"`tools` must do without it: {message}."))
    rules, arguments = [], []
    properties = {} if _COMPLEX & function.schema.keys() else function.schema.get("properties") or {}
    required = function.schema.get("required") or []
    for number, name in enumerate(properties):
        rule = f"argument_{place}_{number}"
        rules.append(_argument(rule, json.dumps(name), property_schema(function.schema, name), function.strict, form))
        arguments.append(rule if name in required else f"{rule}?")
    if not properties and function.parameters:
        rule = f"argument_{place}"
        rules.append(_argument(rule, r"/[^<>\n]{1,64}/", {}, False, form))
        arguments.append(f"{rule}{{0,32}}")
    if form.family == "qwen_coder":
        name, end = json.dumps(f"\n<function={function.name}>\n"), '"</function>\\n"'
    else:
        name, end = json.dumps(f"{function.name}\n"), ""
    return "\n".join([f"call_{place}: {name} {' '.join(arguments)} {end}", *rules])


def unenforced_texts(schema: Mapping[str, Any]) -> set[str]:
    """Return the keywords of a function's schema that its arguments need not follow in these syntaxes."""
    found = set(_COMPLEX & schema.keys())
    for name in schema.get("properties") or {}:
        argument = property_schema(schema, name)
        if is_text(argument) and "enum" not in argument and "const" not in argument:
            found |= _UNENFORCED & argument.keys()
    return found


def _argument(rule: str, key: str, schema: dict[str, Any], is_strict: bool | None, form: ToolFormat) -> str:
    """Return the rules of one argument: its tags with the value between them."""
    if form.family == "qwen_coder":
        opening = f'"<parameter=" {key} ">\\n"'
        closing, closing_text, after = '"\\n</parameter>\\n"', '"\\n</parameter>\\n"', ""
    else:
        tags = [marker_rule(tag, form.marker_ids) for tag in (KEY, "</arg_key>", "<arg_value>", "</arg_value>")]
        opening = f'{tags[0]} {key} {tags[1]} "\\n" {tags[2]}'
        closing, closing_text, after = tags[3], "" if tags[3].startswith("<") else tags[3], '"\\n"'
    value = f"{rule}_value"
    if not is_text(schema) and schema:
        return f"{rule}: {opening} {value} {closing} {after}\n{value}: {json_rule(schema, is_strict)}"
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if choices is not None:
        texts = " | ".join(json.dumps(choice) if choice else '""' for choice in choices)
        return f"{rule}: {opening} {value} {closing} {after}\n{value}: {texts}"
    text = f"/{ANY_TEXT}{_length(schema)}/"
    if closing_text:  # a lazy lexeme ends at the first closing tag
        return f"{rule}: {opening} {value} {after}\n{value}[lazy]: {text} {closing_text}"
    return f"{rule}: {opening} {value} {closing} {after}\n{value}: {text}"


def _length(schema: Mapping[str, Any]) -> str:
    """Return the quantifier of a text's characters."""
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if not least and most is None:
        return "*"
    return f"{{{least},{'' if most is None else most}}}"
