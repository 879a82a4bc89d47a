"""Small edits of a document's text that preserve its comments, order and layout."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import yaml

from routing_policies.policy.document import DEFAULT_LANES, Lane
from routing_policies.policy.nodes import NULL, compose
from routing_policies.policy.problems import Path, dotted

_PART: Final = re.compile(r"([A-Za-z0-9_-]+)|\[(\d{1,6})\]")
_PLAIN: Final = re.compile(r"[a-z][a-z0-9_-]*")
_RESERVED: Final = frozenset({"on", "off", "yes", "no", "y", "n", "true", "false", "null"})
"""Words that some YAML loaders read as something else than text."""
_SOURCE: Final = "policy"
_ITEM: Final = re.compile(r"[ \t]*-[ \t]+")

Value = str | int | float | bool | None | Sequence[Any] | Mapping[str, Any]
"""JSON value of one place in a document."""


class EditError(ValueError):
    """Error for an edit that cannot be made in this text; the message gives the reason."""


def parse_path(text: str) -> Path:
    """Parse a path such as `routes[0].cache.ttl_s`; raises EditError."""
    parts: list[str | int] = []
    for piece in text.split("."):
        found = list(_PART.finditer(piece))
        if not found or "".join(part.group(0) for part in found) != piece:
            raise EditError(f"{text}: not a path such as routes[0].cache.ttl_s")
        parts += [part.group(1) if part.group(1) is not None else int(part.group(2)) for part in found]
    return tuple(parts)


def set_value(text: str, path: Path, value: Value) -> str:
    """Return the text with one value replaced; sections that lead to it are added where they are missing.

    A document without lanes has default lanes. They are written out before one of them is edited.

    Raises:
        EditError: The path leads to nothing, or to a section where a single value is given.
        PolicyError: The text is no YAML.
    """
    root = compose(text, _SOURCE).root
    if len(path) > 1 and path[0] == "lanes" and _child(root, "lanes") is None:
        text = _add_list(text, root, "lanes", [_lane_as_written(lane) for lane in DEFAULT_LANES])
        root = compose(text, _SOURCE).root
    node, key_end = root, 0
    for depth, part in enumerate(path):
        if _is_null(node):
            return _replace(text, node, key_end, _nested(path, depth, value), path)
        child = _child(node, part)
        if child is None:
            written = _written(_nested(path, depth + 1, value))
            if not isinstance(node, yaml.MappingNode) or not isinstance(part, str):
                raise EditError(f"{dotted(path[: depth + 1])}: is not in the document")
            return _insert(text, node, part, written)
        key_end = _key_end(node, part)
        node = child
    return _replace(text, node, key_end, value, path)


def remove_value(text: str, path: Path) -> str:
    """Return the text without one value or list item, and without sections that this would leave empty.

    The text stays unchanged where the path leads to nothing.

    Raises:
        EditError: The value is written in a form that cannot be cut out.
        PolicyError: The text is no YAML.
    """
    parents: list[yaml.Node] = [compose(text, _SOURCE).root]
    for part in path:
        child = _child(parents[-1], part)
        if child is None:
            return text
        parents.append(child)
    depth = len(path) - 1
    while depth > 0 and len(parents[depth].value) == 1 and isinstance(path[depth - 1], str):
        depth -= 1
    return _cut(text, parents[depth], path[: depth + 1])


def add_item(text: str, key: str, item: Mapping[str, Any]) -> str:
    """Return the text with one more item in a list at the top of the document; raises as `set_value`."""
    root = compose(text, _SOURCE).root
    node = _child(root, key)
    if node is None:
        return _add_list(text, root, key, [item])
    if not isinstance(node, yaml.SequenceNode):
        raise EditError(f"{key}: is no list")
    written = _written(item)
    if node.flow_style:
        end = node.end_mark.index - 1
        return text[:end] + (", " if node.value else "") + written + text[end:]
    start, indent = node.start_mark.index, " " * node.start_mark.column
    return f"{text[:start]}- {written}\n{indent}{text[start:]}"


def _lane_as_written(lane: Lane) -> dict[str, Any]:
    given = {"id": lane.id, "weight": lane.weight, "max_prompt_tokens": lane.max_prompt_tokens, "longer": lane.longer}
    return {key: value for key, value in given.items() if value is not None}


def _nested(path: Path, depth: int, value: Value) -> Value:
    """Wrap the value into the sections of the path from `depth` on; raises EditError for list items."""
    for position in range(len(path) - 1, depth - 1, -1):
        part = path[position]
        if isinstance(part, int):
            raise EditError(f"{dotted(path[: position + 1])}: is not in the document")
        value = {part: value}
    return value


def _replace(text: str, node: yaml.Node, key_end: int, value: Value, path: Path) -> str:
    start, end = node.start_mark.index, _end_of(text, node)
    if start < key_end or end is None:
        raise EditError(f"{dotted(path)}: is an alias of another value; edit the text")
    is_single = not isinstance(value, Mapping) and (isinstance(value, str) or not isinstance(value, Sequence))
    if is_single and (not isinstance(node, yaml.ScalarNode) or node.style in ("|", ">")):
        raise EditError(f"{dotted(path)}: is no single value")
    if (isinstance(node, yaml.ScalarNode) and end > start) or getattr(node, "flow_style", False) or not key_end:
        return text[:start] + _written(value) + text[end:]
    return f"{text[:key_end]}: {_written(value)}{text[end:]}"


def _cut(text: str, parent: yaml.Node, path: Path) -> str:
    """Cut the entry at the end of the path out of its mapping or list."""
    entries = _entries(parent)
    index = next(at for at, (part, _, _) in enumerate(entries) if part == path[-1])
    _, start, node = entries[index]
    follower = entries[index + 1][1] if index + 1 < len(entries) else None
    end = _end_of(text, node) if node.start_mark.index >= start else None
    if end is None and follower is None:
        raise EditError(f"{dotted(path)}: is an alias of another value; edit the text")
    if getattr(parent, "flow_style", False):
        if follower is not None:
            return text[:start] + text[follower:]
        before = _end_of(text, entries[index - 1][2]) if index else start
        return text[: before or start] + text[end:]
    line_start = text.rfind("\n", 0, start) + 1
    is_line = not text[line_start:start].strip() or (
        isinstance(parent, yaml.SequenceNode) and _ITEM.fullmatch(text[line_start:start]) is not None
    )
    if not is_line and follower is not None:  # the first key of a list's item stands behind its hyphen
        return text[:start] + text[follower:]
    if not is_line or end is None:
        raise EditError(f"{dotted(path)}: cannot be cut out; edit the text")
    line_end = text.find("\n", end)
    return text[:line_start] + ("" if line_end < 0 else text[line_end + 1 :])


def _entries(node: yaml.Node) -> list[tuple[str | int, int, yaml.Node]]:
    """Return the key or index, the start and the value of each entry."""
    if isinstance(node, yaml.MappingNode):
        return [(key.value, key.start_mark.index, value) for key, value in node.value]
    return [(index, item.start_mark.index, item) for index, item in enumerate(node.value)]


def _add_list(text: str, root: yaml.Node, key: str, items: Sequence[Mapping[str, Any]]) -> str:
    if not isinstance(root, yaml.MappingNode):
        raise EditError("the document is no mapping")
    if root.flow_style or root.start_mark.column:
        return _insert(text, root, key, _written(items))
    return f"{text.rstrip()}\n{key}:\n" + "".join(f"  - {_written(item)}\n" for item in items)


def _insert(text: str, node: yaml.MappingNode, key: str, written: str) -> str:
    """Add an entry behind the last one; before the first one where the last one's end is unknown."""
    last = _end_of(text, node.value[-1][1]) if node.value and _is_in_place(node) else None
    if node.flow_style:
        end = node.end_mark.index - 1 if last is None else last
        return text[:end].rstrip() + (", " if node.value else "") + f"{key}: {written}" + text[end:]
    indent = " " * node.start_mark.column
    if last is None:
        start = node.start_mark.index
        return f"{text[:start]}{key}: {written}\n{indent}{text[start:]}"
    line_end = text.find("\n", last)
    line_end = len(text) if line_end < 0 else line_end
    return f"{text[:line_end]}\n{indent}{key}: {written}{text[line_end:]}"


def _is_in_place(node: yaml.MappingNode) -> bool:
    """Return whether the last value stands behind its key; an alias has the place of what it repeats."""
    key, value = node.value[-1]
    return bool(value.start_mark.index >= key.end_mark.index)


def _end_of(text: str, node: yaml.Node) -> int | None:
    """Return where the node's text ends, without comments behind it; None where an alias hides the end."""
    if isinstance(node, yaml.ScalarNode) or getattr(node, "flow_style", False):
        end: int = node.end_mark.index
        return len(text[:end].rstrip()) if getattr(node, "style", None) in ("|", ">") else end
    if isinstance(node, yaml.MappingNode):
        return _end_of(text, node.value[-1][1]) if _is_in_place(node) else None
    before = node.value[-2].end_mark.index if len(node.value) > 1 else node.start_mark.index
    last = node.value[-1]
    return _end_of(text, last) if last.start_mark.index >= before else None


def _child(node: yaml.Node, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        pairs: list[tuple[yaml.Node, yaml.Node]] = node.value
        return next((value for key, value in pairs if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
        items: list[yaml.Node] = node.value
        return items[part] if part < len(items) else None
    return None


def _key_end(node: yaml.Node, part: str | int) -> int:
    """Return where the key of an entry ends; 0 for the item of a list."""
    pairs: Iterable[tuple[yaml.Node, yaml.Node]] = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((key.end_mark.index for key, _ in pairs if key.value == part), 0)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == NULL


def _written(value: Value) -> str:
    """Encode a value as YAML in one line, which every loader reads back unchanged."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_written(key)}: {_written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and value not in _RESERVED
        return value if is_plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)
