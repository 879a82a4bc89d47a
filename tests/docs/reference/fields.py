"""The page of request fields: the field table, which gateway and engine read."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.chat.fields.table import FIELD_RULES, FieldRule
from tests.docs.reference.markdown import code, page, table

_INTRODUCTION = """
Every field of a chat request that gateway or engine know, by its path; `[]` is an item of a list, `{}` a member under a
name of your choice. What is not in the table goes on as it was written, at every depth, and the bundled engine ignores
it. Null and empty members count as absent. `POST /v1/chat/completions` of both is made from this table.

- The gateway **reads** a field that changes what it does, **checks** its type and range, **passes** it on unseen, or
  **refuses** it.
- The bundled engine **serves** a field, **ignores** it, or **refuses** it where the answer would mean something else
  without it.
"""
_HEADER = ("field", "must", "gateway", "engine", "remarks")


def fields_page() -> str:
    """Return the page."""
    return page("Request fields", _INTRODUCTION, table(_HEADER, _rows()))


def _rows() -> Iterator[tuple[str, ...]]:
    for path, rule in FIELD_RULES.items():
        condition = "" if rule.gateway == "passes" and rule.engine != "serves" else rule.condition
        if rule.type == "any" and rule.must is None:
            condition = ""
        yield code(path), condition, rule.gateway, rule.engine, "; ".join(_remarks(rule))


def _remarks(rule: FieldRule) -> Iterator[str]:
    if rule.because is not None:
        yield rule.because
    if rule.served:
        yield f"the engine takes {' and '.join(code(str(value)) for value in rule.served)}"
    if rule.only_with is not None:
        yield f"only with {code(rule.only_with)}"
    if rule.is_closed:
        yield "other members are refused"
    if rule.engine_must is not None:
        yield f"at the engine must {rule.engine_must}"
    for word, limit in (("least", rule.engine_least), ("most", rule.engine_most)):
        if limit is not None:
            yield f"at the engine at {word} {limit}"
