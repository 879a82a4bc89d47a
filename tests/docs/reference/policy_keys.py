"""The page of policy keys: every struct of the document, key by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec
from msgspec import inspect

from routing_policies.policy.document import Policy
from tests.docs.reference.markdown import code, field_docs, one_line, page, section, table

_INTRODUCTION = """
Every key of the policy document, by the place where it stands; `[]` is an item of a list, `{}` a name of your choice.
A key without a default is required. `penstock policy schema` prints the same as a JSON Schema for editors,
`penstock policy check` names unknown keys with line and column. [How policies are changed](../policies.md).
"""


def policy_keys_page() -> str:
    """Return the page."""
    return page("Policy keys", _INTRODUCTION, *_sections(Policy, ""))


def _sections(owner: type, place: str) -> Iterator[str]:
    """One section for a struct, then those of the structs inside it, in the order of its fields."""
    rows, inner = [], []
    reported = field_docs(owner)
    hints = get_type_hints(owner, include_extras=True)
    for field in msgspec.structs.fields(owner):
        name = field.encode_name
        kind = inspect.type_info(hints[field.name])
        text, structs = _words(kind)
        rows.append((code(name), text, _default(field), reported.get(field.name, "")))
        suffix = _suffix(kind)
        inner += [(struct, f"{place}.{name}{suffix}".lstrip(".")) for struct in structs]
    title = code(place) if place else "The document"
    yield section(title, one_line(owner.__doc__), table(("key", "value", "default", "meaning"), rows))
    for struct, below in inner:
        yield from _sections(struct, below)


def _suffix(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.UnionType):
        return max((_suffix(member) for member in kind.types), key=len)
    if isinstance(kind, inspect.Metadata):
        return _suffix(kind.type)
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        return "[]"
    return ".{}" if isinstance(kind, inspect.DictType) else ""


def _words(kind: inspect.Type) -> tuple[str, list[type]]:
    """A type in words, and the structs in it."""
    match kind:
        case inspect.Metadata():
            text, structs = _words(kind.type)
            description = (kind.extra_json_schema or {}).get("description")
            return description or text, structs
        case inspect.StructType():
            return "table", [kind.cls]
        case inspect.VarTupleType() | inspect.ListType():
            text, structs = _words(kind.item_type)
            return f"list of {_plural(text)}", structs
        case inspect.DictType():
            text, structs = _words(kind.value_type)
            return f"table of {_plural(text)}", structs
        case inspect.UnionType():
            members = [_words(member) for member in kind.types if not isinstance(member, inspect.NoneType)]
            return " or ".join(text for text, _ in members), [each for _, structs in members for each in structs]
        case inspect.LiteralType():
            return ", ".join(code(str(value)) for value in kind.values), []
        case inspect.BoolType():
            return "true or false", []
        case inspect.StrType():
            return f"text, {kind.max_length} characters at most" if kind.max_length else "text", []
        case inspect.IntType() | inspect.FloatType():
            noun = "integer" if isinstance(kind, inspect.IntType) else "number"
            return " ".join(filter(None, (noun, _bounds(kind)))), []
    raise TypeError(f"no words for {kind!r}: add them here")


def _plural(text: str) -> str:
    return {"table": "tables", "text": "texts"}.get(text, text)


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    low = f"above {kind.gt:g}" if kind.gt is not None else "" if kind.ge is None else f"from {_number(kind.ge)}"
    high = "" if kind.le is None else f"to {_number(kind.le)}"
    return " ".join(filter(None, (low, high)))


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"


def _default(field: Any) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
        return "" if not value else code(str(value))
    if field.default is msgspec.NODEFAULT:
        return "required"
    plain = msgspec.to_builtins(field.default)
    if plain is None or plain == "" or plain == () or plain == []:
        return "none"
    if isinstance(field.default, msgspec.Struct):
        return "see below"
    if isinstance(plain, list | tuple):
        return code(", ".join(str(item.get("id", item)) if isinstance(item, dict) else str(item) for item in plain))
    return code(str(plain).lower() if isinstance(plain, bool) else str(plain))
