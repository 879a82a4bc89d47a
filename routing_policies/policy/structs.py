"""YAML nodes to msgspec structs, collecting all problems instead of stopping at the first."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
import yaml
from msgspec.structs import FieldInfo

from routing_policies.policy.nodes import problem_at, scalar_value
from routing_policies.policy.problems import Path, PathProblem, Problem, did_you_mean, renamed_or_near

MAX_NODES = 200_000
"""Number of nodes read from one document, aliases counted at each use; it bounds the cost of nested aliases."""

S = TypeVar("S", bound=msgspec.Struct)
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_KINDS = {yaml.ScalarNode: "a single value", yaml.SequenceNode: "a list", yaml.MappingNode: "a mapping"}


class _Absent:
    """Placeholder for a value that could not be read; its problem is already recorded."""


_ABSENT = _Absent()


class StructReader:
    """Reader of one document; `problems` collects its faults."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        self._variables = variables
        self._num_nodes = 0
        self._fields: dict[type[msgspec.Struct], dict[str, FieldInfo]] = {}

    def read(self, node: yaml.Node, cls: type[S]) -> S | None:
        """Return the struct at `node`, or None with the reason in `problems`."""
        value = self._struct(node, cls, ())
        return value if isinstance(value, cls) else None

    def _value(self, node: yaml.Node, kind: Any, path: Path) -> Any:
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES:
            if self._num_nodes == MAX_NODES + 1:
                self._report(node, path, f"more than {MAX_NODES} values once aliases are expanded")
            return _ABSENT
        if get_origin(kind) is Annotated:
            return self._annotated(node, kind, path)
        if get_origin(kind) in (Union, types.UnionType):
            return self._value(node, self._member(node, get_args(kind)), path)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._struct(node, kind, path)
        if get_origin(kind) is tuple:
            return self._tuple(node, get_args(kind)[0], path)
        if get_origin(kind) is dict:
            return self._dict(node, get_args(kind), path)
        return self._scalar(node, kind, path)

    def _annotated(self, node: yaml.Node, kind: Any, path: Path) -> Any:
        inner = get_args(kind)[0]
        if get_origin(inner) is not tuple:
            return self._scalar(node, kind, path)
        items = self._value(node, inner, path)
        least = max((meta.min_length or 0) for meta in get_args(kind)[1:])
        if isinstance(items, tuple) and len(items) < least:
            return self._report(node, path, f"needs at least {least} item{'s' if least > 1 else ''}")
        return items

    def _member(self, node: yaml.Node, members: tuple[Any, ...]) -> Any:
        """Return the member of a union that fits the node's shape."""
        named = [member for member in members if member is not types.NoneType]
        if len(named) < len(members) and isinstance(node, yaml.ScalarNode) and scalar_value(node) is None:
            return types.NoneType
        structs = [m for m in named if isinstance(m, type) and issubclass(m, msgspec.Struct)]
        others = [m for m in named if m not in structs]
        preferred = structs if isinstance(node, yaml.MappingNode) else others
        return (preferred or named)[0]

    def _struct(self, node: yaml.Node, cls: type[msgspec.Struct], path: Path) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._mismatch(node, yaml.MappingNode, path)
        fields = self._fields_of(cls)
        values: dict[str, Any] = {}
        for key, child in self._pairs(node, path):
            if key not in fields:
                self._report(
                    self._key_node(node, key), (*path, key), f"unknown key{renamed_or_near(key, list(fields))}"
                )
            else:
                values[fields[key].name] = self._value(child, fields[key].type, (*path, key))
        for name, field in fields.items():
            if field.required and field.name not in values:
                self._report(node, path, f'"{name}" is missing')
                values[field.name] = _ABSENT
        if any(value is _ABSENT for value in values.values()):
            return _ABSENT
        try:
            return cls(**values)
        except ValueError as error:
            return self._report(node, path, str(error))

    def _fields_of(self, cls: type[msgspec.Struct]) -> dict[str, FieldInfo]:
        """Return the fields by key, cached because resolving type hints is slow and long lists repeat a class."""
        if cls not in self._fields:
            self._fields[cls] = {field.encode_name: field for field in msgspec.structs.fields(cls)}
        return self._fields[cls]

    def _tuple(self, node: yaml.Node, kind: Any, path: Path) -> Any:
        if not isinstance(node, yaml.SequenceNode):
            return self._mismatch(node, yaml.SequenceNode, path)
        items = [self._value(child, kind, (*path, index)) for index, child in enumerate(node.value)]
        return _ABSENT if any(item is _ABSENT for item in items) else tuple(items)

    def _dict(self, node: yaml.Node, kinds: tuple[Any, Any], path: Path) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._mismatch(node, yaml.MappingNode, path)
        items: dict[str, Any] = {}
        for key, child in self._pairs(node, path):
            checked = self._convert(self._key_node(node, key), key, kinds[0], (*path, key))
            if checked is not _ABSENT:
                items[key] = self._value(child, kinds[1], (*path, key))
        return _ABSENT if any(item is _ABSENT for item in items.values()) else items

    def _pairs(self, node: yaml.MappingNode, path: Path) -> list[tuple[str, yaml.Node]]:
        pairs: dict[str, yaml.Node] = {}
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._report(key, path, "a key must be plain text")
            elif key.value in pairs:
                first = pairs[key.value].start_mark.line + 1
                self._report(key, (*path, key.value), f"given twice; the first is on line {first}")
            else:
                pairs[key.value] = child
        return list(pairs.items())

    def _key_node(self, node: yaml.MappingNode, key: str) -> yaml.Node:
        pairs: list[tuple[yaml.Node, yaml.Node]] = node.value
        return next(found for found, _ in pairs if found.value == key)

    def _scalar(self, node: yaml.Node, kind: Any, path: Path) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return self._mismatch(node, yaml.ScalarNode, path)
        value = scalar_value(node)
        if isinstance(value, str):
            try:
                value = _VARIABLE.sub(self._substitute, value)
            except KeyError as error:
                name = str(error.args[0])
                return self._report(node, path, f'no variable "{name}"{did_you_mean(name, list(self._variables))}')
        if isinstance(value, int | float) and _is_text(kind):
            return self._report(node, path, f'expected text, got {node.value}; put it in quotes: "{node.value}"')
        return self._convert(node, value, kind, path)

    def _substitute(self, match: re.Match[str]) -> str:
        return self._variables[match.group(1)]

    def _convert(self, node: yaml.Node, value: object, kind: Any, path: Path) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            return self._report(node, path, _explain(str(error), value, kind))

    def _mismatch(self, node: yaml.Node, wanted: type[yaml.Node], path: Path) -> _Absent:
        return self._report(node, path, f"expected {_KINDS[wanted]}, got {_KINDS[type(node)]}")

    def _report(self, node: yaml.Node, path: Path, message: str) -> _Absent:
        self.problems.append(problem_at(node, PathProblem(path=path, message=message)))
        return _ABSENT


def _is_text(kind: Any) -> bool:
    return kind is str or (get_origin(kind) is Annotated and get_args(kind)[0] is str)


def _explain(message: str, value: object, kind: Any) -> str:
    """Translate msgspec's message: the expected form, the value found, the nearest allowed word."""
    choices = [choice for choice in get_args(kind) if isinstance(choice, str)]
    if choices and isinstance(value, str):
        return f'"{value}" is not a choice here{did_you_mean(value, choices)}'
    if get_origin(kind) is Literal and not choices:
        return f"expected {' or '.join(map(str, get_args(kind)))}, got {_shown(value)}"
    if "matching regex" in message:
        wanted = [meta.description for meta in get_args(kind)[1:] if meta.description]
        message = f"expected {wanted[0]}" if wanted else message
    wording = message.replace("`", "").partition(", got ")[0]
    if any((meta.extra or {}).get("is_secret") for meta in get_args(kind)[1:] if isinstance(meta, msgspec.Meta)):
        return f"{wording[0].lower()}{wording[1:]}"
    return f"{wording[0].lower()}{wording[1:]}, got {_shown(value)}"


def _shown(value: object) -> str:
    text = "nothing" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
