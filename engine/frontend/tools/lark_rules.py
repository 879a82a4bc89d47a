"""Pieces of llguidance's Lark grammars that several rules use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.frontend.request.json_schemas import compiled_schema
from engine.frontend.request.schema_nodes import reached_nodes
from engine.frontend.schemas.compiler_form import may_repeat_names

MAX_CALLS: Final = 16
"""Maximum number of calls of one forced answer."""
ANY_TEXT: Final = r"(.|\n)"

# Allows a space or a line break with indentation, so that an answer cannot consist of spaces.
_WHITE_SPACE: Final = r"( |\r?\n[ \t]{0,40})?"
_SHORT_ESCAPES: Final = 'nrbtf\\"'
r"""Escapes of strings without `\uXXXX`, with which an undeclared name could spell a declared one."""


def json_rule(schema: dict[str, Any], is_strict: bool | None) -> str:
    """Return the rule of a JSON value, with our compiler options, which replace the client's."""
    return f"%json {json.dumps(with_options(schema, is_strict))}"


def with_options(schema: dict[str, Any], is_strict: bool | None) -> dict[str, Any]:
    """Return the schema with our compiler options, which replace its own."""
    options: dict[str, Any] = {
        "whitespace_pattern": _WHITE_SPACE,
        "lenient": not is_strict,
        "coerce_one_of": not is_strict,
    }
    if any(map(may_repeat_names, reached_nodes(schema))):
        options["json_allowed_escapes"] = _SHORT_ESCAPES
    return {**compiled_schema(schema, "schema", is_strict=bool(is_strict)), "x-guidance": options}


def marker_rule(text: str, marker_ids: Mapping[str, int]) -> str:
    """Return a marker as its token if the vocabulary has one, otherwise as text."""
    token_id = marker_ids.get(text)
    return json.dumps(text) if token_id is None else f"<[{token_id}]>"


def ids_rule(token_ids: Sequence[int]) -> str:
    """Return any one of these tokens; empty if there are none."""
    return f"<[{','.join(map(str, token_ids))}]>" if token_ids else ""


def repeated_rule(item: str, separator: str, may_be_many: bool) -> str:
    """Return the item, several times if there may be many."""
    between = f"{json.dumps(separator)} " if separator else ""
    return f"{item} ({between}{item}){{0,{MAX_CALLS - 1}}}" if may_be_many else item
