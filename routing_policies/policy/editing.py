"""Small edits of a document's text that preserve its comments, order and layout."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from routing_policies.policy.nodes import compose
from routing_policies.policy.problems import Path, dotted

_PART: Final = re.compile(r"([A-Za-z0-9_-]+)|\[(\d{1,6})\]")
_SOURCE: Final = "policy"

Scalar = str | int | float | bool | None


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


def set_value(text: str, path: Path, value: Scalar) -> str:
    """Return the text with one scalar replaced, or added to a mapping that lacks it.

    Raises:
        EditError: The path does not lead to a scalar.
        PolicyError: The text is no YAML.
    """
    node: yaml.Node = compose(text, _SOURCE).root
    for depth, part in enumerate(path):
        child = _child(node, part)
        if child is None and depth == len(path) - 1 and isinstance(node, yaml.MappingNode) and isinstance(part, str):
            return _insert(text, node, part, _written(value))
        if child is None:
            raise EditError(f"{dotted(path[: depth + 1])}: is not in the document")
        node = child
    if not isinstance(node, yaml.ScalarNode) or node.style in ("|", ">"):
        raise EditError(f"{dotted(path)}: is no single value")
    return text[: node.start_mark.index] + _written(value) + text[node.end_mark.index :]


def add_item(text: str, key: str, item: Mapping[str, Any]) -> str:
    """Return the text with one more item in a list at the top of the document; raises as `set_value`."""
    root = compose(text, _SOURCE).root
    written = json.dumps(item, ensure_ascii=False)  # JSON is YAML
    node = _child(root, key)
    if node is None:
        return _add_list(text, root, key, written)
    if not isinstance(node, yaml.SequenceNode):
        raise EditError(f"{key}: is no list")
    if node.flow_style:
        end = node.end_mark.index - 1
        return text[:end] + (", " if node.value else "") + written + text[end:]
    start, indent = node.start_mark.index, " " * node.start_mark.column
    return f"{text[:start]}- {written}\n{indent}{text[start:]}"


def _add_list(text: str, root: yaml.Node, key: str, written: str) -> str:
    if not isinstance(root, yaml.MappingNode):
        raise EditError("the document is no mapping")
    if root.flow_style or root.start_mark.column:
        return _insert(text, root, key, f"[{written}]")
    return f"{text.rstrip()}\n{key}:\n  - {written}\n"


def _insert(text: str, node: yaml.MappingNode, key: str, written: str) -> str:
    if node.flow_style:
        end = node.end_mark.index - 1
        return text[:end].rstrip() + (", " if node.value else "") + f"{key}: {written}" + text[end:]
    start, indent = node.start_mark.index, " " * node.start_mark.column
    return f"{text[:start]}{key}: {written}\n{indent}{text[start:]}"


def _child(node: yaml.Node, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        pairs: list[tuple[yaml.Node, yaml.Node]] = node.value
        return next((value for key, value in pairs if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
        items: list[yaml.Node] = node.value
        return items[part] if part < len(items) else None
    return None


def _written(value: Scalar) -> str:
    """Encode a scalar as JSON, which YAML reads back unchanged."""
    return json.dumps(value, ensure_ascii=False)
