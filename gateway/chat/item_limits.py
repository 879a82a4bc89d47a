"""Limits on the items of each list and object that the gateway reads of a request, by path: `messages[].content`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec
from msgspec import inspect

from gateway.chat.json_faults import MAX_VALUES


@cache
def item_limits(kind: type[msgspec.Struct]) -> Mapping[str, int]:
    """Return the limits that a type states; MAX_VALUES for a list or object without one."""
    limits: dict[str, int] = {}
    _add(limits, inspect.type_info(kind), "")
    return limits


def _add(limits: dict[str, int], kind: inspect.Type, path: str) -> None:
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            _add(limits, each, path)
    elif isinstance(kind, inspect.ListType):
        _note(limits, path, kind.max_length)
        _add(limits, kind.item_type, path + "[]")
    elif isinstance(kind, inspect.DictType):
        _note(limits, path, kind.max_length)
    elif isinstance(kind, inspect.StructType):
        _note(limits, path, None)
        for field in kind.fields:
            _add(limits, field.type, f"{path}.{field.encode_name}" if path else field.encode_name)


def _note(limits: dict[str, int], path: str, limit: int | None) -> None:
    """Note a limit; of several types at one path the most generous counts."""
    limits[path] = max(limits.get(path, 0), MAX_VALUES if limit is None else limit)
