"""The page of settings: every key of `penstock.toml`, its variable, and every setting of the engine."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from engine.config import AnswerConfig, CoreConfig, FrontConfig
from gateway.config.settings import GatewayConfig
from gateway.config.sources import CONFIG_ENV, variable_of
from tests.docs.reference.markdown import code, field_docs, one_line, page, section, table

_INTRODUCTION = f"""
Settings of one gateway process. Sources, later ones win: `penstock.toml` in the working directory (or the file that
`--config` or `{CONFIG_ENV}` names), variables, flags. Unknown keys and wrong values end the start with exit status 2
and the place of the mistake. [Flags](cli.md), [the policy](policy-keys.md).
"""


class _Setting(NamedTuple):
    """One key, below the tables that it stands in."""

    key: str
    kind: str
    default: str
    text: str


def settings_page() -> str:
    """Return the page."""
    settings = list(_settings(GatewayConfig))
    tables = sorted({item.key.rpartition(".")[0] for item in settings} - {""})
    parts = []
    for name in tables:
        owner = _table_type(GatewayConfig, name)
        below = [item for item in settings if item.key.rpartition(".")[0] == name]
        parts.append(section(f"Gateway: `[{name}]`", one_line(owner.__doc__), _rest(owner), _table(below)))
    return page("Settings", _INTRODUCTION, *parts, section("Engine", _ENGINE.strip(), _engine_table()))


_ENGINE = """
An engine takes [flags](cli.md) only: `--` and the name with hyphens. `penstock up` sets what the bundled pair needs.
"""


def _settings(owner: Any, prefix: str = "") -> Iterator[_Setting]:
    hints, reported = typing.get_type_hints(owner), field_docs(owner)
    for field in dataclasses.fields(owner):
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind):
            yield from _settings(kind, f"{prefix}{field.name}.")
        else:
            yield _Setting(f"{prefix}{field.name}", type_text(kind), _default(field), reported.get(field.name, ""))


def _table_type(owner: Any, name: str) -> type:
    for part in name.split("."):
        owner = typing.get_type_hints(owner)[part]
    assert isinstance(owner, type)
    return owner


def _rest(owner: type) -> str:
    """The paragraphs of a docstring behind the first one."""
    return " ".join((owner.__doc__ or "").partition("\n\n")[2].split())


def _table(settings: list[_Setting]) -> str:
    return table(
        ("key", "variable", "type", "default", "meaning"),
        ((code(item.key), code(variable_of(item.key)), item.kind, code(item.default), item.text) for item in settings),
    )


def _engine_table() -> str:
    rows = []
    for owner in (FrontConfig, AnswerConfig, CoreConfig):
        hints, reported = typing.get_type_hints(owner), field_docs(owner)
        for field in dataclasses.fields(owner):
            kind = type_text(hints[field.name])
            rows.append((code(field.name), kind, code(_default(field)), reported.get(field.name, "")))
    return table(("setting", "type", "default", "meaning"), rows)


def type_text(kind: Any) -> str:
    """Return a type in words: `int`, `file`, or the values that are allowed."""
    if typing.get_origin(kind) is typing.Literal:
        return ", ".join(code(str(value)) for value in typing.get_args(kind))
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return ", ".join(type_text(member) for member in typing.get_args(kind) if member is not type(None))
    return {Path: "path", bool: "true or false", str: "text", int: "integer", float: "number"}.get(kind, str(kind))


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        if field.default_factory is dataclasses.MISSING:
            return ""
        value = field.default_factory()
        return value.name if isinstance(value, Path) else str(value)
    if field.default is None or field.default == "":
        return ""
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
