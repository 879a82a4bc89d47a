"""YAML text to nodes with line numbers.

Only numbers, booleans and nulls of YAML 1.2's core schema are typed. `off`, `no` and `1:30` stay text, unlike with
PyYAML's own loaders.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from routing_policies.policy.problems import PathProblem, PolicyError, Problem, dotted

MAX_DEPTH = 32
"""Depth limit, above any document of the schema; it keeps the recursive composer far from Python's own limit."""

NULL = "tag:yaml.org,2002:null"
BOOL = "tag:yaml.org,2002:bool"
INT = "tag:yaml.org,2002:int"
FLOAT = "tag:yaml.org,2002:float"
STR = "tag:yaml.org,2002:str"

_INT = re.compile(r"^[-+]?[0-9]{1,18}\Z")
_FLOAT = re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?\Z")
_CORE_SCHEMA: dict[str, list[tuple[str, re.Pattern[str]]]] = {
    **{first: [(NULL, re.compile(r"^(?:~|null|Null|NULL|)\Z"))] for first in ("~", "n", "N", "")},
    **{first: [(BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)\Z"))] for first in "tTfF"},
    **{first: [(INT, _INT), (FLOAT, _FLOAT)] for first in "-+.0123456789"},
}
"""Possible tags by a scalar's first character, in the order tried."""


class _Loader(yaml.SafeLoader):
    """Composer of nodes with bounded depth; constructs nothing."""

    yaml_implicit_resolvers = _CORE_SCHEMA

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                mark = parent.start_mark if parent is not None else None
                raise yaml.MarkedYAMLError(None, None, f"nested deeper than {MAX_DEPTH}", mark)
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


@dataclass(frozen=True, slots=True)
class Document:
    """Composed tree and its source."""

    root: yaml.Node
    source: str

    def locate(self, finding: PathProblem) -> Problem:
        """Return the finding with line and column of the deepest existing node on its path."""
        node = self.root
        for part in finding.path:
            child = _child(node, part)
            if child is None:
                break
            node = child
        return problem_at(node, finding)


def compose(text: str, source: str) -> Document:
    """Return the single document in `text`; raises PolicyError when it is not YAML or is empty."""
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise PolicyError(source, [_syntax_problem(error)]) from error
    except yaml.reader.ReaderError as error:
        message = f"character #x{error.character:04x} at offset {error.position} is not allowed in YAML"
        raise PolicyError(source, [Problem(line=1, column=1, path="", message=message)]) from error
    if root is None:
        problem = Problem(line=1, column=1, path="", message="empty; a policy needs schema_version and deployments")
        raise PolicyError(source, [problem])
    return Document(root, source)


def problem_at(node: yaml.Node, finding: PathProblem) -> Problem:
    """Return the finding placed at the node's first character."""
    mark = node.start_mark
    return Problem(line=mark.line + 1, column=mark.column + 1, path=dotted(finding.path), message=finding.message)


def scalar_value(node: yaml.ScalarNode) -> str | int | float | bool | None:
    """Return the scalar as the core schema types it."""
    text: str = node.value
    if node.tag == NULL:
        return None
    if node.tag == BOOL:
        return text.lower() == "true"
    if node.tag == INT:
        return int(text)
    if node.tag == FLOAT:
        return float(text)
    return text


def _child(node: yaml.Node, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
        children: list[yaml.Node] = node.value
        return children[part] if part < len(children) else None
    if isinstance(node, yaml.MappingNode):
        pairs: list[tuple[yaml.Node, yaml.Node]] = node.value
        return next((value for key, value in pairs if key.value == part), None)
    return None


def _syntax_problem(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    parts = [part for part in (error.context, error.problem) if part]
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return Problem(line=line, column=column, path="", message=f"not valid YAML: {', '.join(parts)}")
